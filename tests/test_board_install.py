"""The extra `board` in an environment of its own, of a board's Python and PYNQ: it generates, without what exports."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from fastcar.export.pipeline import export_model
from fastcar.toolkit.deploy.wheel import build_wheel, checkout

CONSTRAINTS = Path(__file__).parents[1] / "constraints.txt"
# Python and PYNQ of Kria-PYNQ, and of the images of PYNQ 4.
BOARDS = {"3.10": "3.0.1", "3.12": "4.0.0"}
WORKSTATION = ("torch", "brevitas", "onnx", "onnx_ir", "ml_dtypes", "transformers", "gymnasium", "pytest")
ARGUMENTS = ("--prompt", "left turn", "--frames", "2", "--seed", "1", "--threshold", "0")
PATIENCE_SECONDS = 600

GENERATE = """
import importlib.util, sys
workstation = {names!r}
print([name for name in workstation if importlib.util.find_spec(name)])
from fastcar.toolkit.cli.app import main
sys.argv = ["fastcar", *{arguments!r}]
try:
    code = main()
except SystemExit as ended:
    code = ended.code
assert not code, code
print([name for name in workstation if name in sys.modules])
"""


def python_of(version: str) -> str | None:
    """One that runs and can make environments: a name on the path may be there without what it stands for."""
    installed = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    question = "import ensurepip, sys, venv; print('%d.%d' % sys.version_info[:2])"
    for candidate in filter(None, (shutil.which(f"python{version}"), *map(str, installed))):
        done = subprocess.run([candidate, "-c", question], capture_output=True, text=True)
        if done.returncode == 0 and done.stdout.strip() == version:
            return candidate
    return None


@dataclass(frozen=True)
class Installed:
    python: Path
    folder: Path

    def run(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """-I is not given: PYTHONPATH counts; the folder has nothing that could be taken for a package."""
        names = {"PYTHONPATH", "PYTHONHOME", "XILINX_XRT", "VIRTUAL_ENV"}
        kept = {name: value for name, value in os.environ.items() if name not in names}
        return subprocess.run(
            [str(self.python), *arguments], capture_output=True, text=True, cwd=self.folder, timeout=PATIENCE_SECONDS,
            env=kept | {"XDG_CACHE_HOME": str(self.folder / "cache")} | variables,
        )  # fmt: skip

    def pip(self, *arguments: str) -> None:
        done = self.run("-m", "pip", *arguments, PIP_DISABLE_PIP_VERSION_CHECK="1", PIP_NO_INPUT="1")
        assert done.returncode == 0, "\n".join((done.stdout + done.stderr).splitlines()[-15:])

    def generate(self, bundle: Path, out: Path, backend: str, **variables: str) -> np.ndarray:
        """The codes; fails where the command fails, or a package of the workstation is there or gets imported."""
        device = ("--device", "emulated") if backend == "pynq" else ()
        arguments = ["generate", str(bundle), *ARGUMENTS, "--out", str(out), "--backend", backend, *device]
        done = self.run("-c", GENERATE.format(names=WORKSTATION, arguments=arguments), **variables)
        assert done.returncode == 0, done.stdout + done.stderr
        lines = done.stdout.splitlines()
        assert (lines[0], lines[-1]) == ("[]", "[]")
        return load_file(out / "run.safetensors")["codes"]

    def site_packages(self) -> Path:
        done = self.run("-c", "import sysconfig; print(sysconfig.get_path('purelib'))")
        return Path(done.stdout.strip())


@pytest.fixture(scope="module", params=["3.10", pytest.param("3.12", marks=pytest.mark.hard)])
def version(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def board(version: str, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    python = python_of(version)
    if python is None:
        pytest.skip(f"no Python {version} that runs on this machine")
    if shutil.which("g++") is None:
        pytest.skip("no g++: the emulated device's engine is C++")
    folder = tmp_path_factory.mktemp(f"board-{version}-")
    subprocess.run([python, "-m", "venv", str(folder / "env")], check=True)
    installed = Installed(folder / "env/bin/python", folder)
    root = checkout()
    assert root is not None, "the tests run from a checkout"
    lines = CONSTRAINTS.read_text().splitlines()
    pins = [f"pynq=={BOARDS[version]}" if line.startswith("pynq==") else line for line in lines]
    constraints = folder / "constraints.txt"
    constraints.write_text("\n".join(pins) + "\n")
    installed.pip("install", "--no-compile", "-c", str(constraints), f"{build_wheel(root, folder / 'wheel')}[board]")
    installed.pip("check")
    installed.pip("install", "-c", str(constraints), "--no-deps", "hls4ml")
    return installed


@pytest.fixture(scope="module")
def bundle(car_like: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packed") / "kv260"
    return export_model(car_like, folder, recipe="w4a8", board="kv260", evaluate=False).path


@pytest.fixture(scope="module")
def codes(board: Installed, bundle: Path) -> np.ndarray:
    """What onnxruntime generates there."""
    return board.generate(bundle, board.folder / "expected", "onnxruntime")


@pytest.mark.slow
def test_the_emulated_device_generates_what_onnxruntime_does(
    board: Installed, bundle: Path, codes: np.ndarray, version: str
) -> None:
    """And PYNQ, which keeps the state of a board in its own folder, leaves nothing there."""
    package = board.site_packages() / "pynq"
    before = sorted(file for file in package.rglob("*") if "__pycache__" not in file.parts)
    np.testing.assert_array_equal(board.generate(bundle, board.folder / "pynq", "pynq"), codes)
    assert sorted(file for file in package.rglob("*") if "__pycache__" not in file.parts) == before
    done = board.run("-c", "import pynq; print(pynq.__version__)")
    assert done.stdout.split() == [BOARDS[version]]


@pytest.mark.slow
def test_the_codes_are_those_of_this_environment(codes: np.ndarray, bundle: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fastcar", "generate", str(bundle), *ARGUMENTS, "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(codes, load_file(tmp_path / "run.safetensors")["codes"])


@pytest.mark.slow
def test_with_numpy_2(board: Installed, bundle: Path, codes: np.ndarray) -> None:
    """All but PYNQ itself, whose buffers need NumPy 1: that is told in a sentence."""
    newer = board.folder / "numpy-2"
    board.pip("install", "--target", str(newer), "numpy>=2")
    path = {"PYTHONPATH": str(newer)}
    assert board.run("-c", "import numpy; print(numpy.__version__)", **path).stdout.startswith("2.")
    for backend in ("onnxruntime", "reference", "csim"):
        found = board.generate(bundle, board.folder / f"numpy-2-{backend}", backend, **path)
        np.testing.assert_array_equal(found, codes)
    arguments = ("generate", str(bundle), *ARGUMENTS, "--backend", "pynq", "--device", "emulated")
    done = board.run("-m", "fastcar", *arguments, "--out", str(board.folder / "none"), **path)
    assert done.returncode == 3 and "fastcar: numpy: 2." in done.stderr, done.stderr
