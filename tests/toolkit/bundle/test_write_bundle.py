"""A bundle appears whole or not at all, and replaces nothing but a bundle."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from car_like import copy_of

from fastcar.toolkit.bundle.bundle import MANIFEST, REQUIRED, Bundle
from fastcar.toolkit.bundle.manifest import Manifest
from fastcar.toolkit.bundle.write import write_bundle
from fastcar.toolkit.errors import OutputError


@pytest.fixture
def manifest(bundle_w8a8: Path) -> Manifest:
    return Bundle.open(bundle_w8a8, verify=False).manifest.model_copy(update={"files": {}})


def filling(manifest: Manifest, text: str = "x") -> Callable[[Path], Manifest]:
    def fill(folder: Path) -> Manifest:
        for name in REQUIRED:
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text)
            (folder / name).chmod(0o600)  # as some writers leave them
        return manifest

    return fill


def never(folder: Path) -> Manifest:
    pytest.fail("no work may start")


def content(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_written_bundle_verifies(manifest: Manifest, tmp_path: Path):
    made = write_bundle(tmp_path / "deep" / "er" / "bundle", filling(manifest))
    made.verify()
    assert set(made.manifest.files) == set(REQUIRED)
    assert [file.name for file in made.path.parent.iterdir()] == ["bundle"]
    assert made.path.stat().st_mode & 0o777 == 0o755
    assert {file.stat().st_mode & 0o777 for file in made.path.rglob("*") if file.is_file()} == {0o644}


@pytest.mark.parametrize("failure", [RuntimeError, KeyboardInterrupt, SystemExit, OSError, OutputError])
@pytest.mark.parametrize("late", [False, True])
def test_nothing_half_written_is_left(manifest: Manifest, tmp_path: Path, failure: type[BaseException], late: bool):
    def fill(folder: Path) -> Manifest:
        if late:
            filling(manifest)(folder)
        else:
            (folder / "half").write_text("x")
        raise failure(*("1234" if failure is OutputError else ()))

    with pytest.raises(failure):
        write_bundle(tmp_path / "new" / "folder" / "bundle", fill)
    assert not list(tmp_path.iterdir())


def test_a_failed_overwrite_leaves_the_earlier_bundle(manifest: Manifest, tmp_path: Path):
    write_bundle(tmp_path / "bundle", filling(manifest, "first"))
    before = content(tmp_path)

    def fill(folder: Path) -> Manifest:
        filling(manifest, "second")(folder)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_bundle(tmp_path / "bundle", fill, overwrite=True)
    assert content(tmp_path) == before


def test_a_failed_rename_leaves_the_earlier_bundle(manifest: Manifest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write_bundle(tmp_path / "bundle", filling(manifest, "first"))
    before, rename = content(tmp_path), Path.rename

    def failing(source: Path, target: Path) -> Path:
        if target.name == "bundle" and not source.name.endswith(".old"):
            raise OSError(28, "No space left on device")
        return rename(source, target)

    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(OSError, match="No space"):
        write_bundle(tmp_path / "bundle", filling(manifest, "second"), overwrite=True)
    assert content(tmp_path) == before


def test_overwrite_replaces_a_bundle(manifest: Manifest, tmp_path: Path):
    write_bundle(tmp_path / "bundle", filling(manifest, "first"))
    write_bundle(tmp_path / "bundle", filling(manifest, "second"), overwrite=True).verify()
    assert (tmp_path / "bundle" / REQUIRED[0]).read_text() == "second"
    assert [file.name for file in tmp_path.iterdir()] == ["bundle"]


def test_a_bundle_is_not_replaced_unasked(bundle_w8a8: Path, tmp_path: Path):
    copy_of(bundle_w8a8, tmp_path / "bundle")
    with pytest.raises(OutputError, match="exists already.*--overwrite"):
        write_bundle(tmp_path / "bundle", never)


@pytest.mark.parametrize("overwrite", [False, True])
def test_what_is_not_a_bundle_is_never_replaced(tmp_path: Path, overwrite: bool):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "empty").mkdir()
    (tmp_path / "extension").mkdir()
    (tmp_path / "extension" / MANIFEST).write_text('{"manifest_version": 3}')
    before = content(tmp_path)
    for name in ("file", "empty", "extension", "."):
        with pytest.raises(OutputError):
            write_bundle(tmp_path / name, never, overwrite)
    assert content(tmp_path) == before


def test_a_bundle_with_a_file_of_the_users_is_not_replaced(bundle_w8a8: Path, tmp_path: Path):
    folder = copy_of(bundle_w8a8, tmp_path / "bundle")
    (folder / "golden" / "notes.txt").write_text("mine")
    with pytest.raises(OutputError, match=r"holds 'golden/notes\.txt'"):
        write_bundle(folder, never, overwrite=True)


def test_a_link_is_followed(manifest: Manifest, tmp_path: Path):
    real = write_bundle(tmp_path / "real", filling(manifest, "first")).path
    os.symlink(real, tmp_path / "link")
    write_bundle(tmp_path / "link", filling(manifest, "second"), overwrite=True)
    assert (tmp_path / "link").is_symlink()
    assert (real / REQUIRED[0]).read_text() == "second"
    os.symlink(tmp_path / "not-yet", tmp_path / "dangling")
    write_bundle(tmp_path / "dangling", filling(manifest)).verify()
    assert (tmp_path / "not-yet" / MANIFEST).is_file()


@pytest.mark.parametrize("name", ["file/bundle", "file/deeper/bundle", "n" * 300])
def test_a_place_that_cannot_be_written_is_told_before_any_work(tmp_path: Path, name: str):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="Choose another"):
        write_bundle(tmp_path / name, never)
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_a_virtual_file_system_is_told_before_any_work():
    with pytest.raises(OutputError, match="/proc/bundle"):
        write_bundle(Path("/proc/bundle"), never)
