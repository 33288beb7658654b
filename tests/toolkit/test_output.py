"""The check before work and the rename after it."""

from __future__ import annotations

import shutil
from collections import namedtuple

import pytest

from fastcar.toolkit.errors import OutputError
from fastcar.toolkit.output import check_output_folder, replacing

Usage = namedtuple("Usage", "total used free")


def test_a_folder_that_can_be_made_passes_and_is_not_made(tmp_path):
    wanted = tmp_path / "a" / "b"
    assert check_output_folder(wanted) == wanted
    assert check_output_folder(tmp_path) == tmp_path
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["file", "file/below", "file/far/below"])
def test_a_file_in_the_way_is_named(tmp_path, name):
    (tmp_path / "file").write_text("x")
    with pytest.raises(OutputError, match=r"file is a file; expected a folder"):
        check_output_folder(tmp_path / name)


def test_a_folder_that_takes_no_files_is_refused_even_for_root():
    with pytest.raises(OutputError, match="/proc/self/out: .*expected a folder that can be written"):
        check_output_folder("/proc/self/out")


def test_read_only_is_refused(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    with pytest.raises(OutputError, match="read-only file system"):
        check_output_folder(tmp_path / "out")


@pytest.mark.parametrize("free, passes", [(1 << 20, True), ((1 << 20) - 1, False), (0, False)])
def test_a_full_disk_is_refused(tmp_path, monkeypatch, free, passes):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(1 << 30, 0, free))
    if passes:
        assert check_output_folder(tmp_path / "out", 1 << 20) == tmp_path / "out"
        return
    with pytest.raises(OutputError, match=r"free on its disk; expected 1\.0 MiB"):
        check_output_folder(tmp_path / "out", 1 << 20)


@pytest.mark.parametrize("name", ["x" * 300, "nul\0byte"])
def test_a_name_no_system_takes_is_refused(tmp_path, name):
    with pytest.raises(OutputError, match="expected the name of a folder"):
        check_output_folder(tmp_path / name)


def test_the_file_appears_only_when_complete(tmp_path):
    target = tmp_path / "new" / "out.bin"
    with replacing(target) as partial:
        partial.write_bytes(b"12")
        assert not target.exists() and partial.parent == target.parent
    assert target.read_bytes() == b"12" and list(target.parent.iterdir()) == [target]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_interrupted_write_keeps_the_earlier_file(tmp_path, error):
    target = tmp_path / "out.bin"
    target.write_bytes(b"earlier")
    with pytest.raises(error), replacing(target) as partial:
        partial.write_bytes(b"half")
        raise error
    assert target.read_bytes() == b"earlier" and list(tmp_path.iterdir()) == [target]


def test_a_path_below_a_file_is_an_output_error(tmp_path):
    (tmp_path / "file").write_text("x")
    below = tmp_path / "file" / "out"
    with pytest.raises(OutputError, match="not a directory|file exists"), replacing(below) as partial:
        partial.write_bytes(b"")
