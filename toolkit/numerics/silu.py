"""SiLU of a map, given as bytes: one look-up a value in a table made for this map."""

from __future__ import annotations

import numpy as np

from .byte_conv import ByteMap, map_step
from .tables import sigmoid_table, table_index

__all__ = ["SILU_DEPTH", "silu", "silu_bytes"]

SILU_DEPTH = np.float32(0.27846454)  # SiLU is nowhere below minus this: -W(1/e), W of Lambert


def silu(x: np.ndarray) -> np.ndarray:
    """x * sigmoid(x), float32 of any shape; sigmoid from a table by a 16-bit index."""
    return x * sigmoid_table()[table_index(x)]


def silu_bytes(x: np.ndarray) -> ByteMap:
    """x (channels, height, width) float32 -> SiLU(x) in bytes that reach from the function's minimum to its largest.

    x is indexed by 16 bits of max|x| over the map; what is done 65536 times for the table is not done for each value.
    """
    step = map_step(x)
    scale = (np.maximum(silu(x.max()), np.float32(0)) + SILU_DEPTH) / np.float32(255)
    zero_point = np.rint(SILU_DEPTH / scale)
    entries = silu(np.arange(-32768, 32768, dtype=np.float32) * step)
    table = np.clip(np.rint(entries / scale) + zero_point, 0, 255).astype(np.uint8)
    index = np.rint(x / step).astype(np.int64) + 32768
    return ByteMap(table[index], int(zero_point), scale)
