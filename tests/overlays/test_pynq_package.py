"""What is installed is a package in PYNQ's sense: its notebook is delivered, its overlays are found by bare names."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fastcar.overlays import load_engine
from fastcar.overlays.bitfile import write_emulated_bitfile
from fastcar.overlays.design import block_design
from fastcar.overlays.hwh import handoff_text
from fastcar.overlays.links import write_release_links
from fastcar.toolkit.deploy.wheel import build_wheel, checkout

NOTEBOOK = "fastcar.ipynb"

LOAD = """
import pynq
from fastcar.hls.library import EngineLibrary
from fastcar.overlays import load_engine
from fastcar.overlays.design import block_design
from fastcar.overlays.emulated.device import EmulatedDevice
from fastcar.overlays.emulated.faults import parse_faults

engine = load_engine("kv260")
device = EmulatedDevice(block_design(engine), EngineLibrary(engine.config), parse_faults("name=KV260"))
pynq.Device.active_device = device
overlay = pynq.Overlay("fastcar.bit", device=device)
print(overlay.bitfile_name, device.downloads, sorted(overlay.ip_dict), sep="\\n")
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = checkout()
    assert root is not None, "the tests run from a checkout"
    return build_wheel(root, tmp_path_factory.mktemp("wheel"))


@pytest.fixture
def installed(wheel: Path, tmp_path: Path) -> Path:
    """A folder with the wheel of the checkout, unpacked as pip does it."""
    target = tmp_path / "installed"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-compile"]
    subprocess.run([*command, "--target", str(target), str(wheel)], check=True)
    return target


def run(installed: Path, code: str) -> str:
    """In a Python that finds ``installed`` before anything else."""
    variables = {"PYTHONPATH": str(installed), "TMPDIR": str(installed.parent), "PYTHONWARNINGS": "ignore"}
    environment = {name: value for name, value in os.environ.items() if name != "XILINX_XRT"} | variables
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, cwd=installed.parent, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def get_notebooks(installed: Path, *options: str) -> str:
    pytest.importorskip("pynq")
    return run(
        installed,
        f"import sys; from pynq._cli.get_notebooks import main; sys.argv = ['pynq', *{options!r}]; main()",
    )


def overlay(folder: Path, name: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    design = block_design(load_engine("kv260"))
    write_emulated_bitfile(folder / f"{name}.bit", design)
    (folder / f"{name}.hwh").write_text(handoff_text(design))
    return folder / f"{name}.bit"


def test_pynq_delivers_the_notebook(installed: Path, tmp_path: Path) -> None:
    assert "fastcar (source: fastcar)" in get_notebooks(installed, "--list")
    get_notebooks(installed, "fastcar", "-d", "KV260", "-p", str(tmp_path / "jupyter"))
    delivered = tmp_path / "jupyter/fastcar"
    assert [file.name for file in delivered.iterdir()] == [NOTEBOOK]
    source = Path(__file__).parents[2] / "overlays/notebooks" / NOTEBOOK
    assert (delivered / NOTEBOOK).read_bytes() == source.read_bytes()


def test_pynq_delivers_the_overlay_of_a_release_with_it(installed: Path, tmp_path: Path) -> None:
    pytest.importorskip("magic", reason="PYNQ's downloads need libmagic1", exc_type=ImportError)
    bit = overlay(tmp_path / "release", "kv260")
    write_release_links(installed / "fastcar/overlays/notebooks", {"KV260": bit}, bit.parent.as_uri())
    get_notebooks(installed, "fastcar", "-d", "KV260", "-p", str(tmp_path / "jupyter"))
    names = sorted(file.name for file in (tmp_path / "jupyter/fastcar").iterdir())
    assert names == ["fastcar.bit", "fastcar.hwh", NOTEBOOK]
    assert (tmp_path / "jupyter/fastcar/fastcar.bit").read_bytes() == bit.read_bytes()


def test_pynq_finds_an_overlay_by_its_bare_name(installed: Path, tmp_path: Path) -> None:
    """Below the package, one a device, as a link file is resolved when the package is built."""
    pytest.importorskip("pynq")
    bit = overlay(tmp_path / "release", "kv260")
    for suffix in (".bit", ".hwh"):
        folder = installed / f"fastcar/overlays/fastcar{suffix}.d"
        folder.mkdir()
        shutil.copy(bit.with_suffix(suffix), folder / f"fastcar.KV260{suffix}")
    handoff = installed / "fastcar/overlays/fastcar.hwh.d/fastcar.KV260.hwh"
    shutil.copy(handoff, installed / "fastcar/overlays/fastcar.bit.d")  # it looks for it beside the bitstream
    path, downloads, instances = run(installed, LOAD).splitlines()
    assert Path(path) == installed / "fastcar/overlays/fastcar.bit.d/fastcar.KV260.bit"
    assert downloads == "1" and "engine_interrupts" in instances
