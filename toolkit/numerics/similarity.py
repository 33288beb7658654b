"""Another criterion of replay, to compare TAS with: how similar an MLP's input is to that of the cached output.

That features change little from one step to the next is what caches of diffusion models rest on (arXiv 2312.00858);
here the change is measured. Unlike TAS the score is known only after attention, and takes the norm of every row.
"""

from __future__ import annotations

import numpy as np

from .linear import exact_matmul

__all__ = ["SIMILARITY_UNIT", "input_similarity", "inputs_to_cache"]

SIMILARITY_UNIT = 2.0**-20
"""Cosine = score * unit: finer would be below what binary32 tells apart next to 1, after a few roundings."""


def input_similarity(values: np.ndarray, before: np.ndarray) -> np.ndarray:
    """round(cos(values, before) / unit), row by row: (rows,) int64 in -2^20..2^20.

    values, before (rows, hidden) int8 in -127..127: the MLP's normalized input now, and the one that the cached output
    was computed from. Scales do not matter to a cosine. Equal rows score 2^20 exactly, as sqrt(a * a) is a in binary32;
    a row of zeros, which has no direction, scores 0 with any other and with itself, so that it is computed.

    Products and squares are below 127 * 127 * hidden, within int32 up to hidden = 133144.
    """
    product = _dot(values, before)
    squares = _dot(values, values) * _dot(before, before)
    norms = np.maximum(np.sqrt(squares), np.float32(1))  # integers: 1 is the least norm but 0
    return np.rint(product / norms * np.float32(1 / SIMILARITY_UNIT)).astype(np.int64)


def inputs_to_cache(values: np.ndarray, before: np.ndarray, replay: np.ndarray) -> np.ndarray:
    """(rows, hidden) int8 the cached outputs are computed from: a row that replays keeps its own, which bounds drift.

    Compared with the frame before instead, a slow change would never be seen.
    """
    return np.where(replay[:, None], before, values)


def _dot(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Row by row, an exact integer as binary32: (rows,)."""
    return exact_matmul(one[:, None, :], other[:, :, None]).reshape(-1).astype(np.float32)
