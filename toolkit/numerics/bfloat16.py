"""bfloat16, the format replayed MLP outputs are kept in: the upper half of a binary32, rounded half to even."""

from __future__ import annotations

import numpy as np

__all__ = ["from_bfloat16", "to_bfloat16"]


def to_bfloat16(x: np.ndarray) -> np.ndarray:
    """Finite float32 -> uint16 bit patterns of the nearest bfloat16, ties to even."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_bfloat16(bits: np.ndarray) -> np.ndarray:
    """uint16 bit patterns -> float32, exact."""
    return (bits.astype(np.uint32) << 16).view(np.float32)
