"""RMSNorm fused with the quantization of its output."""

from __future__ import annotations

import numpy as np

from .linear import QuantizedRows, quantize_rows, row_max_abs

__all__ = ["int16_rows", "rms_norm"]


def int16_rows(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """x (rows, hidden) float32 -> round(x / step), float32 integers in -32767..32767, and step = max|x| / 32767."""
    step = row_max_abs(x) / np.float32(32767)
    return np.rint(x / step), step


def rms_norm(x: np.ndarray, gain: np.ndarray, eps: float) -> QuantizedRows:
    """x (rows, hidden) float32 -> int8 rows of x / sqrt(mean(x^2) + eps) * gain (arXiv 1910.07467, eq. 4).

    x is brought to int16 first, so the sum of squares is an integer: 2^30 * hidden fits int64 for any hidden.
    The normalizing factor is common to the row and only enters its scale.
    """
    integer, step = int16_rows(x)
    squares = np.square(integer.astype(np.int64)).sum(axis=-1, keepdims=True)
    mean = squares.astype(np.float32) / np.float32(x.shape[-1])
    root = np.sqrt(mean + np.float32(eps) / (step * step))
    quantized = quantize_rows(integer * gain)
    return QuantizedRows(quantized.values, quantized.scale / root)
