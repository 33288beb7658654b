"""Scales of queries, keys and values, and the integer multipliers that make TAS one integer over all heads."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["HeadScales", "head_scales", "query_key_scales", "value_scales"]

LEVEL_MAX = 127
MULTIPLIER_MAX = 127
QK_SCALE_FLOOR = 2.0**-10  # q.k of such a head is flat anyway; the softmax table's factor stays representable
VALUE_SCALE_FLOOR = 2.0**-30


@dataclass(frozen=True)
class HeadScales:
    """q_scale[h] = float32(tas_multiplier[h] * tas_scale / k_scale[h // group]).

    ``q_scale`` (heads,) and ``k_scale`` (kv_heads,) float32 quantize and enter the softmax; ``tas_multiplier``
    (heads,) int32 in 1..127 and ``tas_scale`` define the score. The two agree to the rounding of one float32.
    """

    q_scale: np.ndarray
    k_scale: np.ndarray
    tas_multiplier: np.ndarray
    tas_scale: float


def head_scales(q_peak: np.ndarray, k_peak: np.ndarray) -> HeadScales:
    """From the largest |q| (heads,) and |k| (kv_heads,) seen in calibration.

    The head with the largest product of scales takes multiplier 127; the others are rounded up, so no query is
    clipped that calibration saw unclipped, and a product below 1/127 of the largest only loses query resolution.
    """
    k_scale = _scale(k_peak, QK_SCALE_FLOOR).astype(np.float32)
    k_of_head = np.repeat(k_scale.astype(np.float64), q_peak.size // k_peak.size)
    product = _scale(q_peak, QK_SCALE_FLOOR) * k_of_head
    tas_scale = float(product.max() / MULTIPLIER_MAX)
    multiplier = np.clip(np.ceil(product / tas_scale), 1, MULTIPLIER_MAX)
    q_scale = (multiplier * tas_scale / k_of_head).astype(np.float32)
    return HeadScales(q_scale, k_scale, multiplier.astype(np.int32), tas_scale)


def query_key_scales(peak: np.ndarray) -> np.ndarray:
    """(heads,) float32 from the largest |q| or |k| (heads,) seen in calibration, where there is no TAS of them."""
    return _scale(peak, QK_SCALE_FLOOR).astype(np.float32)


def value_scales(v_peak: np.ndarray) -> np.ndarray:
    """(kv_heads,) float32 from the largest |v| (kv_heads,) seen in calibration."""
    return _scale(v_peak, VALUE_SCALE_FLOOR).astype(np.float32)


def _scale(peak: np.ndarray, floor: float) -> np.ndarray:
    """peak / 127 in float64, at least ``floor``; a head that was never active takes 1 / 127."""
    scale = np.maximum(peak.astype(np.float64) / LEVEL_MAX, floor)
    return np.where(peak > 0, scale, 1.0 / LEVEL_MAX)
