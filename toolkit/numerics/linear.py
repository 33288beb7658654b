"""Dynamic activation quantization and the integer linear layer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .weights import LinearWeights

__all__ = ["MAX_ABS_FLOOR", "QuantizedRows", "exact_matmul", "linear", "quantize_rows", "row_max_abs"]

MAX_ABS_FLOOR = np.float32(2.0**-40)  # a row below this is zero for every purpose; keeps 127 / max finite
EXACT_INPUTS = 1024  # products of int8 whose sum is below 2^24, so exact in binary32 in any order


@dataclass(frozen=True)
class QuantizedRows:
    """x is about values * scale: ``values`` (rows, n) int8 in -127..127, ``scale`` (rows, 1) float32."""

    values: np.ndarray
    scale: np.ndarray


def row_max_abs(x: np.ndarray) -> np.ndarray:
    """max |x| over the last axis, kept, and at least the floor. A maximum has no order."""
    return np.maximum(np.abs(x).max(axis=-1, keepdims=True, initial=0), MAX_ABS_FLOOR)


def quantize_rows(x: np.ndarray) -> QuantizedRows:
    """x (rows, n) float32 -> round_half_even(x / scale) with scale max|x| / 127, row by row."""
    scale = row_max_abs(x) / np.float32(127)
    return QuantizedRows(np.rint(x / scale).astype(np.int8), scale)


def exact_matmul(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Integer matrix product, int64. In binary64 every partial sum below 2^53 is exact, and that is where BLAS is."""
    return np.matmul(a.astype(np.float64), b.astype(np.float64)).astype(np.int64)


def linear(x: QuantizedRows, weights: LinearWeights) -> np.ndarray:
    """(rows, in) -> (rows, out) float32: float(sum x * w) * weight scale * row scale + bias, in this order.

    The accumulator is int32: |x| |w| in <= 127 * 127 * in stays below 2^31 up to in = 133144.
    """
    values, (inputs, outputs) = x.values.astype(np.float32), weights.values.shape
    accumulator = np.zeros((len(values), outputs), np.int64)
    for first in range(0, inputs, EXACT_INPUTS):
        part = slice(first, first + EXACT_INPUTS)
        accumulator += np.matmul(values[:, part], weights.operand(part)).astype(np.int64)
    y = accumulator.astype(np.float32) * weights.scale * x.scale
    return y if weights.bias is None else y + weights.bias
