"""Output that is complete or absent: the check before work, and the rename after it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .errors import OutputError

__all__ = ["check_output_folder", "replacing"]

MIB = 1 << 20
FIX = "Choose another output folder."


def check_output_folder(path: str | os.PathLike[str], bytes_needed: int = 16 * MIB) -> Path:
    """Whether files of ``bytes_needed`` bytes in all can be written below ``path``, which need not exist yet.

    Creates nothing that stays. The trial is a real, unnamed file in the nearest existing folder: permission bits
    alone say nothing to root and nothing on a read-only or virtual file system. Raises OutputError.
    """
    path = Path(path)
    base = _nearest_existing(path)
    if not base.is_dir():
        raise OutputError(path, f"{base} is a file", "a folder", FIX)
    try:
        with tempfile.TemporaryFile(dir=base, prefix=".fastcar-"):
            free = shutil.disk_usage(base).free
    except OSError as error:
        raise OutputError(path, _reason(error), "a folder that can be written", FIX) from error
    if free < bytes_needed:
        found, expected = f"{free / MIB:.1f} MiB free on its disk", f"{bytes_needed / MIB:.1f} MiB"
        raise OutputError(path, found, expected, "Free some space or choose another output folder.")
    return path


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary name beside ``path``; renamed to ``path`` when the block ends well, removed when it does not.

    Missing parent folders are created. An OSError inside becomes an OutputError that names ``path``.
    """
    path = Path(path)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield partial
            os.replace(partial, path)
        finally:
            _remove(partial)
    except OSError as error:
        raise OutputError(path, _reason(error), "a file that can be written", FIX) from error


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _nearest_existing(path: Path) -> Path:
    """``path`` or the first folder or file above it that exists; OutputError on a name no system call accepts."""
    for candidate in (path, *path.absolute().parents):
        try:
            candidate.stat()
            return candidate
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (OSError, ValueError) as error:
            raise OutputError(ascii(str(path)), _reason(error), "the name of a folder", FIX) from error
    raise OutputError(path, "no part of it exists", "a folder", FIX)


def _reason(error: OSError | ValueError) -> str:
    return (getattr(error, "strerror", None) or str(error)).lower()
