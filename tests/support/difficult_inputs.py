"""Inputs on which two ways of computing would part: ties, extremes, rows of every size."""

from __future__ import annotations

import numpy as np

from fastcar.toolkit.numerics.linear import QuantizedRows


def unsigned(integers: np.ndarray) -> np.ndarray:
    return (integers.astype(np.int16) + 128).astype(np.uint8)


def draw8(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """int8 with more than its share of extremes."""
    return rng.choice(np.array([*range(-128, 128), *[-128] * 20, *[127] * 20], np.int8), shape)


def next_to_ties(rng: np.random.Generator, n: int, levels: int) -> np.ndarray:
    """What divided by its step lies on the middle between two integers, or one rounding off it."""
    largest = np.float32(rng.uniform(1, 100))
    step = largest / np.float32(levels)
    x = ((rng.integers(1 - levels, levels - 1, n) + 0.5) * step).astype(np.float32)
    x[n // 2] = largest
    return x


def difficult_rows(rng: np.random.Generator, rows: int, n: int) -> np.ndarray:
    """Ordinary, zero, tiny, huge, tied, spiked rows and rows next to ties in turn, the last kind first."""
    x = rng.normal(0, 1, (rows, n)).astype(np.float32)
    for row in range(rows):
        kind = (row + 6) % 7
        if kind == 6:
            x[row] = next_to_ties(rng, n, 127 if row % 2 else 32767)
        elif kind in (1, 2, 3):
            x[row] *= (0, 1e-12, 1e25)[kind - 1]
        elif kind == 4:
            x[row] = rng.integers(-254, 255, n) / np.float32(2)
            x[row, 0] = 127
        elif kind == 5:
            x[row, n // 2] = -400
    return x


def quantized_outputs(quantized: QuantizedRows) -> dict[str, np.ndarray]:
    return {"values": unsigned(quantized.values), "scale": quantized.scale}
