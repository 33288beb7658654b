"""A machine as the probes see it: its files, environment, programs and packages. Tests give another."""

from __future__ import annotations

import os
import platform
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

__all__ = ["Installed", "Machine", "run_command"]

PATIENCE_SECONDS = 5.0


class Installed:
    """The packages of the running Python."""

    def version(self, name: str) -> str | None:
        """None if the package is not installed."""
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            return None

    def requires(self, name: str) -> list[str]:
        """Its requirements as its metadata states them."""
        try:
            return metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            return []


def run_command(command: Sequence[str], seconds: float = PATIENCE_SECONDS) -> str | None:
    """What a program printed; None if it is missing, fails or takes too long. It and its children are ended then."""
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except (OSError, ValueError):
        return None
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.stdout.close()  # not read to its end: a child in another session may hold it
        process.wait()
        return None
    return output if process.returncode == 0 else None


def _disk_free(path: Path) -> int:
    return shutil.disk_usage(path).free


@dataclass(frozen=True)
class Machine:
    """``root``: where its file system is; ``user``: the id the process runs under, 0 is root.

    ``run`` answers what a program prints, or None; ``disk_free`` the bytes left where a path lies.
    """

    root: Path = Path("/")
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    architecture: str = field(default_factory=platform.machine)
    python: tuple[int, int, int] = sys.version_info[:3]
    user: int = field(default_factory=os.geteuid)
    packages: Installed = field(default_factory=Installed)
    run: Callable[[Sequence[str]], str | None] = run_command
    disk_free: Callable[[Path], int] = _disk_free

    def text(self, path: str) -> str | None:
        """Of a file, without the zero bytes and line ends around it; None if it cannot be read."""
        try:
            return (self.root / path).read_text("utf-8", "replace").strip("\0\n\t ")
        except OSError:
            return None

    def files(self, pattern: str) -> list[Path]:
        """Sorted; empty where a folder cannot be read."""
        try:
            return sorted(self.root.glob(pattern))
        except OSError:
            return []

    def program(self, name: str) -> str | None:
        """Path of a program on the path."""
        return shutil.which(name, path=self.environment.get("PATH", ""))
