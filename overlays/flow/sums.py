"""Hashes of files, read in pieces."""

from __future__ import annotations

import hashlib
from pathlib import Path

__all__ = ["sha256"]

PIECE = 1 << 20  # bytes read at a time


def sha256(path: Path) -> str:
    """In 64 digits; OSError if the file cannot be read."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(PIECE):
            digest.update(piece)
    return digest.hexdigest()
