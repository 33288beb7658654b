"""One session a device at a time, across processes."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import tempfile
from pathlib import Path
from typing import IO

from ..errors import DeviceError

__all__ = ["DeviceLock"]


class DeviceLock:
    """Held until ``release``, or the end of the process however it comes. DeviceError names the process that has it."""

    def __init__(self, device: str) -> None:
        folder = Path("/run/lock") if os.access("/run/lock", os.W_OK) else Path(tempfile.gettempdir())
        self.path = folder / f"fastcar-{''.join(c if c.isalnum() else '-' for c in device)}.lock"
        self._file = self._locked(device)
        while not self._is_the_one_there():  # released, and so removed, between our opening and our locking it
            self._file.close()
            self._file = self._locked(device)
        self._file.seek(0)
        self._file.truncate()
        self._file.write(f"process {os.getpid()}")
        self._file.flush()

    def _locked(self, device: str) -> IO[str]:
        file = self._open(device)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = file.read().strip() or "another process"
            file.close()
            raise DeviceError(
                f"device {device}", f"in use by {holder}", "one session at a time", "Wait for it, or end it."
            ) from None
        return file

    def _is_the_one_there(self) -> bool:
        try:
            return os.path.samestat(os.fstat(self._file.fileno()), os.lstat(self.path))
        except OSError:
            return False

    def _open(self, device: str) -> IO[str]:
        try:
            # The folder is everybody's, and this is root: a link laid there must not be written through.
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
            descriptor = os.open(self.path, flags, 0o666)
        except OSError as error:
            found = "a symbolic link" if error.errno == errno.ELOOP else (error.strerror or str(error)).lower()
            raise self._unusable(device, found) from error
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise self._unusable(device, "not a regular file")
        return os.fdopen(descriptor, "r+", encoding="utf-8", errors="replace")

    def _unusable(self, device: str, found: str) -> DeviceError:
        expected, fix = "a lock file that can be written", "Run as the user who made it, or remove it."
        return DeviceError(f"device {device}", f"{self.path}: {found}", expected, fix)

    def release(self) -> None:
        """Again and again is the same as once."""
        if not self._file.closed:
            with contextlib.suppress(OSError):  # another user's, in a folder where only owners remove
                os.unlink(self.path)
            self._file.close()
