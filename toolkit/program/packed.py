"""Program and weights as files: what the board's memory is filled with, byte for byte."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..errors import BundleError
from .descriptors import MODEL, WORDS
from .memory import BEAT_BYTES

__all__ = ["PROGRAM", "WEIGHTS", "Packed"]

PROGRAM = "program.bin"
WEIGHTS = "weights.bin"


@dataclass(frozen=True)
class Packed:
    """``program`` (descriptors, 16) uint32; ``weights`` (beats, 16) uint8; ``padding``: share of it that is none."""

    program: np.ndarray
    weights: np.ndarray
    padding: float | None = None

    @property
    def build_id(self) -> int:
        """Of the engine the program was made for."""
        return int(MODEL.unpack(self.program[0])["build_id"])

    def write(self, folder: Path) -> None:
        self.program.astype("<u4").tofile(folder / PROGRAM)
        self.weights.tofile(folder / WEIGHTS)

    @classmethod
    def read(cls, folder: Path) -> Packed:
        """Mapped, not loaded. BundleError if a file is missing or is not whole descriptors or beats."""
        program = _mapped(folder / PROGRAM, np.dtype("<u4"), WORDS)
        return cls(program, _mapped(folder / WEIGHTS, np.dtype(np.uint8), BEAT_BYTES))


def _mapped(path: Path, dtype: np.dtype, width: int) -> np.ndarray:
    if not path.is_file():
        raise BundleError(path, "no such file", "a bundle packed for an overlay", "Export with --board.")
    size, unit = path.stat().st_size, width * dtype.itemsize
    if size == 0 or size % unit:
        raise BundleError(path, f"{size} bytes", f"a multiple of {unit}", "Copy the bundle again.")
    return np.memmap(path, dtype, "r").reshape(-1, width)
