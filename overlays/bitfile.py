"""The header of a .bit file: design, part and user id, read before a download; and files for the emulated device.

The header is a length and nine magic bytes, then fields of a letter, a 16-bit length and text: a design name with
``;UserID=...;Version=...`` behind it, b part, c date, d time; e is the 32-bit length of what is configured.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
from dataclasses import dataclass
from pathlib import Path

from ..toolkit.errors import OverlayError
from .design import BlockDesign

__all__ = ["Bitfile", "read_bitfile", "regular_size", "write_emulated_bitfile"]

MAGIC = struct.pack(">H", 9) + b"\x0f\xf0" * 4 + b"\0" + struct.pack(">H", 1)
EMULATED = b"no configuration data: for the emulated device only"
LONGEST = 4096  # bytes of a header


@dataclass(frozen=True)
class Bitfile:
    """``design``: name of the top level; ``emulated``: holds no configuration, for the emulated device."""

    path: Path
    design: str
    part: str
    emulated: bool


def read_bitfile(path: Path) -> Bitfile:
    """OverlayError if the file is missing, cut short or no .bit file."""
    expected, fix = "a bitstream (.bit) of Vivado", "Copy the overlay again."
    try:
        size = regular_size(path)
        with path.open("rb") as file:
            head = file.read(LONGEST)
    except OSError as error:
        raise OverlayError(path, (error.strerror or str(error)).lower(), expected, fix) from error
    if not head.startswith(MAGIC):
        raise OverlayError(path, "has no header of a bitstream", expected, fix)
    try:
        texts, start, length = _fields(head)
    except (struct.error, ValueError, KeyError) as error:
        raise OverlayError(path, "its header is cut short or damaged", expected, fix) from error
    if size - start != length:
        found = f"{size - start} bytes behind the header, which says {length}"
        raise OverlayError(path, found, "the whole file", fix)
    name = texts["a"].split(";")[0]
    return Bitfile(path, name, texts["b"], head[start : start + length] == EMULATED)


def regular_size(path: Path) -> int:
    """Bytes of a file; OSError for anything else, such as a pipe, which would be waited for without end."""
    status = path.stat()
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "is no regular file")
    return status.st_size


def _fields(head: bytes) -> tuple[dict[str, str], int, int]:
    """Texts by letter, where the configuration starts, and its length in bytes."""
    texts, at = {}, len(MAGIC)
    for letter in "abcd":
        if head[at : at + 1] != letter.encode():
            raise ValueError(letter)
        (length,) = struct.unpack_from(">H", head, at + 1)
        texts[letter] = head[at + 3 : at + 3 + length].rstrip(b"\0").decode("ascii")
        at += 3 + length
    if head[at : at + 1] != b"e":
        raise ValueError("e")
    return texts, at + 5, struct.unpack_from(">I", head, at + 1)[0]


def write_emulated_bitfile(path: Path, design: BlockDesign) -> None:
    """A .bit file with a true header and a text where the configuration would be; no board will take it."""
    fields = {
        "a": f"{design.name}_wrapper;UserID=0X{design.build_id:08X};Version=2024.1",
        "b": design.board.device.part,
        "c": "2026/01/01",
        "d": "00:00:00",
    }
    texts = b"".join(letter.encode() + _text(text) for letter, text in fields.items())
    path.write_bytes(MAGIC + texts + b"e" + struct.pack(">I", len(EMULATED)) + EMULATED)


def _text(text: str) -> bytes:
    return struct.pack(">H", len(text) + 1) + text.encode("ascii") + b"\0"
