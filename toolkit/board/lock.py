"""One session a device at a time, across processes."""

from __future__ import annotations

import fcntl
import os
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
        self._file = self._open(device)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = self._file.read().strip() or "another process"
            self._file.close()
            raise DeviceError(
                f"device {device}", f"in use by {holder}", "one session at a time", "Wait for it, or end it."
            ) from None
        self._file.seek(0)
        self._file.truncate()
        self._file.write(f"process {os.getpid()}")
        self._file.flush()

    def _open(self, device: str) -> IO[str]:
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise DeviceError(
                f"device {device}",
                f"{self.path}: {(error.strerror or str(error)).lower()}",
                "a lock file that can be written",
                "Run as the user who made it, or remove it.",
            ) from error
        return os.fdopen(descriptor, "r+")

    def release(self) -> None:
        self._file.close()
