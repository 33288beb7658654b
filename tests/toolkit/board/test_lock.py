"""The lock of a device: the first is named, and what lies at its place is not written through."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from fastcar.toolkit.board.lock import DeviceLock
from fastcar.toolkit.errors import DeviceError

DEVICE = f"test-lock-{os.getpid()}"


@pytest.fixture
def place():
    """Where the lock's file is; what a test leaves there is removed."""
    lock = DeviceLock(DEVICE)
    lock.release()
    lock.release()
    assert not lock.path.exists()
    yield lock.path
    if lock.path.is_dir() and not lock.path.is_symlink():
        lock.path.rmdir()
    else:
        lock.path.unlink(missing_ok=True)


def test_the_first_is_named_and_then_free(place: Path) -> None:
    lock = DeviceLock(DEVICE)
    with pytest.raises(DeviceError, match=f"in use by process {os.getpid()};"):
        DeviceLock(DEVICE)
    place.write_bytes(b"\xff\xfe")  # whatever it says now
    with pytest.raises(DeviceError, match="in use by"):
        DeviceLock(DEVICE)
    lock.release()
    DeviceLock(DEVICE).release()


def test_a_link_is_not_written_through(place: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("as it was")
    place.symlink_to(precious)
    with pytest.raises(DeviceError, match="a symbolic link"):
        DeviceLock(DEVICE)
    place.unlink()
    place.symlink_to(tmp_path / "none")
    with pytest.raises(DeviceError, match="a symbolic link"):
        DeviceLock(DEVICE)
    assert precious.read_text() == "as it was" and list(tmp_path.iterdir()) == [precious]


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_no_file(place: Path, make) -> None:
    make(place)
    with pytest.raises(DeviceError, match="a lock file that can be written"):
        DeviceLock(DEVICE)


def test_a_file_that_is_removed_before_it_is_locked_is_no_lock(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The holder released, and removed it, after it was opened here: two would hold the device otherwise."""
    flock, calls = fcntl.flock, []

    def released_meanwhile(file, operation: int) -> None:
        if not calls:
            place.unlink()
        calls.append(operation)
        flock(file, operation)

    monkeypatch.setattr(fcntl, "flock", released_meanwhile)
    lock = DeviceLock(DEVICE)
    assert len(calls) == 2 and place.read_text() == f"process {os.getpid()}"
    with pytest.raises(DeviceError, match="in use by"):
        DeviceLock(DEVICE)
    lock.release()
