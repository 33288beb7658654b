"""LayerNorm fused with the quantization of its output."""

from __future__ import annotations

import numpy as np

from .linear import QuantizedRows, quantize_rows
from .norm import int16_rows

__all__ = ["layer_norm"]


def layer_norm(x: np.ndarray, gain: np.ndarray, bias: np.ndarray, eps: float) -> QuantizedRows:
    """int8 rows of (x - mean) / sqrt(variance + eps) * gain + bias (arXiv 1607.06450, eq. 4).

    x (rows, hidden), gain and bias (hidden,) float32. x is brought to int16 first, so both sums are integers, and
    mean and variance stay n and n^2 times too large instead of being divided: nothing is rounded before the root.

    Widths, up to n = hidden = 32768: |integer| < 2^15, so |sum| < 2^30 and |n integer - sum| < 2^31;
    n * squares and sum^2 < 2^60, and their difference is n^2 times the variance, never negative: all fit int64.
    step > 2^-55, so n^2 eps / step^2 < 2^140 eps is finite up to eps = 2^-12.
    """
    integer, step = int16_rows(x)
    whole, n = integer.astype(np.int64), np.float32(x.shape[-1])
    total = whole.sum(axis=-1, keepdims=True)
    centered = x.shape[-1] * whole - total
    variance = x.shape[-1] * np.square(whole).sum(axis=-1, keepdims=True) - total * total
    with_eps = variance.astype(np.float32) + (n * n) * (np.float32(eps) / (step * step))
    # Below 1 only where all values are equal and eps / step^2 vanishes: 0 / 1 there instead of 0 / 0.
    root = np.sqrt(np.maximum(with_eps, np.float32(1)))
    return quantize_rows(centered.astype(np.float32) / root * gain + bias)
