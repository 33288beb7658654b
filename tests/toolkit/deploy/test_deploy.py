"""Deploys that succeed: what lies on the board afterwards, what is sent a second time, what is kept."""

from __future__ import annotations

import os
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from fastcar.toolkit.bundle.bundle import Bundle


def test_release_arrives_whole_and_is_in_use(board, bundle_w8a8: Path, overlay: Path, wheel: Path, sha256) -> None:
    record = board.deployed(bundle_w8a8, "--overlay", overlay, "--wheel", wheel)
    assert board.current == record["release"]
    current = board.root / "current"
    for name in ("fastcar.bit", "fastcar.hwh", "fastcar.dtbo"):
        assert sha256(current / "overlay" / name) == sha256(overlay.with_name(name))
    assert sha256(current / "bundle/backbone.safetensors") == sha256(bundle_w8a8 / "backbone.safetensors")
    assert sha256(current / "wheel" / wheel.name) == sha256(wheel)
    assert all(os.access(current / name, os.X_OK) for name in ("install.sh", "generate.sh", "activate.sh"))
    assert not os.access(current / "bundle/manifest.json", os.X_OK) or os.getuid() == 0
    assert list((board.root / "incoming").iterdir()) == []
    assert record["installed"] == "fastcar, version 9.9"
    assert (record["sent_bytes"], record["present_bytes"]) == (record["bytes"], 0)
    assert record["previous"] is None
    assert record["command"] == f"{current}/generate.sh straight"
    listed = (current / "SHA256SUMS").read_text().splitlines()
    assert record["files"] == len(listed) + 1


def test_second_deploy_sends_nothing(board, bundle_w8a8: Path, wheel: Path) -> None:
    first = board.deployed(bundle_w8a8, "--wheel", wheel)
    made = (board.root / "current/env/.complete").stat().st_mtime_ns
    second = board.deployed(bundle_w8a8, "--wheel", wheel)
    assert (second["release"], second["sent_bytes"]) == (first["release"], 0)
    assert second["present_bytes"] == first["bytes"]
    assert second["installed"] == "fastcar, version 9.9, installed already"
    assert (board.root / "current/env/.complete").stat().st_mtime_ns == made
    assert second["previous"] is None


def test_archive_is_the_same_release_as_its_folder(board, bundle_w8a8: Path, wheel: Path, tmp_path: Path) -> None:
    archive = Bundle.open(bundle_w8a8).archive(tmp_path / "car.zip")
    first = board.deployed(bundle_w8a8, "--wheel", wheel, "--no-install")
    second = board.deployed(archive, "--wheel", wheel, "--no-install")
    assert (second["release"], second["sent_bytes"]) == (first["release"], 0)


def test_next_release_sends_only_what_is_new(board, bundle_w8a8: Path, overlay: Path, wheel, other_wheel) -> None:
    first = board.deployed(bundle_w8a8, "--overlay", overlay, "--wheel", wheel)
    second = board.deployed(bundle_w8a8, "--overlay", overlay, "--wheel", other_wheel)
    assert second["sent_bytes"] < 10_000 < second["bytes"]
    assert second["previous"] == first["release"]
    assert second["installed"] == "fastcar, version 9.10"


def test_only_the_release_before_is_kept(board, bundle_w8a8: Path, wheel: Path, other_wheel: Path, overlay) -> None:
    """Also when it goes back to it; what no deploy has made is left alone, and what is removed is told."""
    foreign = board.root / "releases" / "notes"
    foreign.mkdir(parents=True)
    ids = [board.deployed(bundle_w8a8, "--wheel", one)["release"] for one in (wheel, other_wheel)]
    abandoned = board.root / "incoming" / "0123456789ab"
    abandoned.mkdir()
    outcome = board.deploy(bundle_w8a8, "--wheel", wheel, "--overlay", overlay)
    assert outcome.code == 0, outcome.stderr
    assert f"removed releases/{ids[0]}" in outcome.stderr
    assert "removed incoming/0123456789ab" in outcome.stderr
    assert not abandoned.exists()
    third = board.current
    assert {file.name for file in (board.root / "releases").iterdir()} == {ids[1], third, "notes"}
    assert os.readlink(board.root / "previous") == f"releases/{ids[1]}"
    subprocess.run([board.root / "previous/activate.sh"], check=True)
    assert board.current == ids[1]
    assert os.readlink(board.root / "previous") == f"releases/{third}"
    assert {file.name for file in (board.root / "releases").iterdir()} == {ids[1], third, "notes"}


def test_without_install_what_is_in_use_stays(board, bundle_w8a8: Path, wheel: Path, other_wheel: Path) -> None:
    first = board.deployed(bundle_w8a8, "--wheel", wheel)["release"]
    record = board.deployed(bundle_w8a8, "--wheel", other_wheel, "--no-install")
    assert board.current == first
    by_hand = {"PIP_NO_INDEX": "1", "FASTCAR_BASE_PYTHON": str(board.folder / "python")}
    subprocess.run(record["install_command"], shell=True, check=True, env=os.environ | by_hand)
    assert board.current == record["release"]


def test_damaged_release_is_repaired_file_by_file(board, bundle_w8a8: Path, wheel: Path, sha256) -> None:
    board.deployed(bundle_w8a8, "--wheel", wheel)
    damaged = board.root / "current/bundle/decoder.onnx"
    flip(damaged)
    missing = board.root / "current/bundle/tokenizer.json"
    missing.unlink()
    record = board.deployed(bundle_w8a8, "--wheel", wheel)
    assert record["sent_again"] == ["bundle/decoder.onnx", "bundle/tokenizer.json"]
    sizes = [(bundle_w8a8 / name).stat().st_size for name in ("decoder.onnx", "tokenizer.json")]
    assert record["sent_bytes"] == sum(sizes)
    assert sha256(damaged) == sha256(bundle_w8a8 / "decoder.onnx")
    assert missing.exists()


@pytest.mark.parametrize("folder", ["dir with  spaces", 'it\'s $HOME `id` "q" ;x & [y] (z) * ü \\n', "~/-a/b"])
def test_folder_of_any_name(board, bundle_w8a8: Path, wheel: Path, overlay: Path, folder: str) -> None:
    record = board.deployed(bundle_w8a8, "--wheel", wheel, "--overlay", overlay, folder=f":{folder}")
    place = board.home / folder.removeprefix("~/")
    assert record["folder"] == str(place)
    assert (place / "current/overlay/fastcar.bit").is_file()
    made = {item.name for item in board.home.iterdir() if not item.name.startswith(".")}
    assert made == {place.relative_to(board.home).parts[0]}
    version = subprocess.run(
        [place / "current/env/bin/python", "-I", "-m", "fastcar", "--version"], capture_output=True
    )
    assert version.stdout == b"fastcar, version 9.9\n"
    again = board.deployed(bundle_w8a8, "--wheel", wheel, "--overlay", overlay, folder=f":{folder}")
    assert again["sent_bytes"] == 0


def test_sources_and_identity_of_any_name(board, bundle_w8a8: Path, wheel: Path, overlay: Path, tmp_path) -> None:
    odd = tmp_path / 'it\'s "odd" % here'
    odd.mkdir()
    bit, key = odd / "my overlay.bit", odd / "my key"
    shutil.copy(overlay, bit)
    shutil.copy(overlay.with_suffix(".hwh"), bit.with_suffix(".hwh"))
    shutil.copy(board.folder / "user", key)
    record = board.deployed(bundle_w8a8, "--wheel", wheel, "--overlay", bit, "--no-install", "--identity", key)
    release = board.root / "releases" / record["release"]
    assert {file.name for file in (release / "overlay").iterdir()} == {"my overlay.bit", "my overlay.hwh"}


def test_wheelhouse_stands_in_for_the_network(board, bundle_w8a8: Path, greedy_wheel: Path, tmp_path: Path) -> None:
    house = tmp_path / "wheels"
    house.mkdir()
    about = "fastcar_test_nowhere-1.0.dist-info"
    with zipfile.ZipFile(house / "fastcar_test_nowhere-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: fastcar-test-nowhere\nVersion: 1.0\n")
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{about}/RECORD", "")
    record = board.deployed(bundle_w8a8, "--wheel", greedy_wheel, "--wheelhouse", house)
    assert record["installed"] == "fastcar, version 9.12"
    assert list((board.root / "current/env").rglob("fastcar_test_nowhere*"))


def flip(path: Path) -> None:
    """Another content, of the same size and time."""
    before = path.stat()
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
