"""What a release is made of, and the id that follows from it; the wheel built from the checkout."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from cli_runs import run
from safetensors.numpy import load_file

from fastcar.overlays import load_engine
from fastcar.overlays.bitfile import write_emulated_bitfile
from fastcar.overlays.design import block_design
from fastcar.overlays.hwh import handoff_text
from fastcar.toolkit.bundle.bundle import Bundle
from fastcar.toolkit.deploy.release import stage
from fastcar.toolkit.deploy.wheel import build_wheel, checkout
from fastcar.toolkit.errors import UsageError


def test_same_contents_same_id(bundle_w8a8: Path, overlay: Path, wheel: Path, tmp_path: Path) -> None:
    bundle = Bundle.open(bundle_w8a8)
    first = stage(tmp_path / "a", bundle, overlay, wheel)
    os.utime(overlay, (1, 1))
    overlay.chmod(0o600)
    assert stage(tmp_path / "b", bundle, overlay, wheel).id == first.id
    overlay.with_suffix(".hwh").write_text("<EDKSYSTEM />\n")
    assert stage(tmp_path / "c", bundle, overlay, wheel).id != first.id
    assert stage(tmp_path / "d", bundle, None, wheel).id != first.id


def test_list_of_hashes_is_of_the_staged_files(bundle_w8a8: Path, overlay: Path, wheel: Path, tmp_path: Path) -> None:
    release = stage(tmp_path / "a", Bundle.open(bundle_w8a8), overlay, wheel)
    lines = dict(reversed(line.split("  ", 1)) for line in release.checklist.splitlines())
    staged = {str(file.relative_to(release.folder)): file for file in release.folder.rglob("*") if file.is_file()}
    assert lines.keys() == staged.keys() == {file.name for file in release.files}
    for name, file in staged.items():
        assert lines[name] == hashlib.sha256(file.read_bytes()).hexdigest()
    assert release.size == sum(file.stat().st_size for file in staged.values())


def test_foreign_files_in_the_bundle_folder_stay_behind(bundle_w8a8: Path, wheel: Path, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(bundle_w8a8, tmp_path / "bundle")
    (tmp_path / "bundle" / "secrets.txt").write_text("x")
    release = stage(tmp_path / "a", Bundle.open(tmp_path / "bundle"), None, wheel)
    assert not [file.name for file in release.files if "secrets" in file.name]


def test_name_that_tools_could_misread(bundle_w8a8: Path, wheel: Path, overlay: Path, tmp_path: Path) -> None:
    odd = overlay.rename(overlay.with_name("a\nb.bit"))
    overlay.with_suffix(".hwh").rename(odd.with_suffix(".hwh"))
    with pytest.raises(UsageError, match="special characters"):
        stage(tmp_path / "a", Bundle.open(bundle_w8a8), odd, wheel)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = checkout()
    assert root is not None
    return build_wheel(root, tmp_path_factory.mktemp("first"))


def test_wheel_of_the_same_sources_has_the_same_bytes(built: Path, tmp_path: Path) -> None:
    """Built from what the first one was built from: a checkout may be at work."""
    source = built.parents[1] / "source"
    for file in source.rglob("*.py"):
        os.utime(file, (1e9, 1e9))
    again = build_wheel(source, tmp_path / "elsewhere")
    assert again.name == built.name
    assert again.read_bytes() == built.read_bytes()


def test_wheel_carries_the_scripts_and_no_tests(built: Path) -> None:
    with zipfile.ZipFile(built) as archive:
        names = archive.namelist()
    assert "fastcar/toolkit/deploy/scripts/install.sh" in names
    assert not [name for name in names if "/tests/" in name]


def test_wheel_of_the_checkout_installs_with_the_packages_that_are_there(board, bundle_w8a8, built: Path) -> None:
    """On a board whose Python has all that is needed, without a network."""
    if missing := unmet(built):
        pytest.skip(f"not installed here: {', '.join(missing)}")
    board.base_on(sys.executable)
    record = board.deployed(bundle_w8a8, "--wheel", built)
    assert record["installed"].startswith("fastcar, version ")
    packages = next((board.root / "current/env/lib").iterdir()) / "site-packages"
    names = {file.name for file in packages.iterdir()}
    assert {name for name in names if not name.startswith("fastcar")} <= {"__pycache__"}
    assert "fastcar" in names, "of the wheel, not of the checkout that the base has too"


def test_the_one_command_on_the_board_generates_a_video(board, bundle_w8a8, built: Path, tmp_path: Path) -> None:
    """All of the way, with the emulated device in the place of the programmable logic."""
    if missing := unmet(built):
        pytest.skip(f"not installed here: {', '.join(missing)}")
    bit = tmp_path / "fastcar.bit"
    design = block_design(load_engine("kv260"))
    write_emulated_bitfile(bit, design)
    bit.with_suffix(".hwh").write_text(handoff_text(design))
    board.base_on(sys.executable)
    record = board.deployed(bundle_w8a8, "--wheel", built, "--overlay", bit)
    environment = {**os.environ, "FASTCAR_DEVICE": "emulated"}
    command = [record["command"].split(" ")[0], "left turn", "--frames", "2", "--seed", "1"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    options = ("--prompt", "left turn", "--frames", 2, "--seed", 1, "--out", tmp_path / "own")
    assert run("generate", bundle_w8a8, *options).code == 0
    found, expected = (load_file(tmp_path / name / "run.safetensors")["codes"] for name in ("clip", "own"))
    assert np.array_equal(found, expected)
    assert (tmp_path / "clip/video.mp4").exists()


def unmet(wheel: Path) -> list[str]:
    """What the extra ``board`` asks for and this Python does not have."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith("/METADATA"))
        lines = archive.read(name).decode().splitlines()
    needs = [line.removeprefix("Requires-Dist: ") for line in lines if line.startswith("Requires-Dist: ")]
    missing = []
    for need in needs:
        package = need.split(";")[0].split("<")[0].split(">")[0].split("=")[0].strip()
        if "extra" not in need or 'extra == "board"' in need.replace("'", '"'):
            try:
                importlib.metadata.version(package)
            except importlib.metadata.PackageNotFoundError:
                missing.append(package)
    return [name for name in missing if name != "tomli" or sys.version_info < (3, 11)]
