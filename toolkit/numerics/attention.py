"""Integer attention of one position over its past and itself."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .linear import exact_matmul
from .tables import ATTENTION_BITS, EXP_FRACTION_BITS, exp2_table

__all__ = ["MASKED", "AttentionScales", "attention", "quantize_heads"]

MASKED = np.int32(-(1 << 30))  # added to a score that must not count; |score| < 2^23 for head_dim <= 512


@dataclass(frozen=True)
class AttentionScales:
    """``exponent`` (heads,) float32: score -> log2 of its weight in 2^-10 steps; ``value`` (kv_heads,) float32."""

    exponent: np.ndarray
    value: np.ndarray

    @classmethod
    def of(cls, q_scale: np.ndarray, k_scale: np.ndarray, v_scale: np.ndarray, head_dim: int) -> AttentionScales:
        """Fold the scales of q and k, 1 / sqrt(head_dim) and log2(e) into one factor a head.

        A factor below 2^-15 would let masked scores through; no calibrated scale comes near it: ValueError.
        """
        k_of_head = np.repeat(k_scale.astype(np.float64), q_scale.size // k_scale.size)
        steps = np.log2(np.e) * (1 << EXP_FRACTION_BITS) / np.sqrt(head_dim)
        exponent = (q_scale.astype(np.float64) * k_of_head * steps).astype(np.float32)
        if exponent.min() < 2.0**-15:
            raise ValueError(f"q_scale * k_scale {exponent.min() / steps:.3g} of a head is too small to be a scale")
        return cls(exponent, v_scale)


def quantize_heads(x: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """x (rows, heads, head_dim) float32 -> clip(round(x / scale), -128, 127) int8; scale (heads,)."""
    return np.clip(np.rint(x / scale[:, None]), -128, 127).astype(np.int8)


def attention(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    k_past: np.ndarray,
    v_past: np.ndarray,
    mask: np.ndarray,
    scales: AttentionScales,
) -> np.ndarray:
    """softmax(q.k / sqrt(head_dim)) v over the past and the current position, (rows, heads * head_dim) float32.

    q (rows, heads, head_dim), k and v (rows, kv_heads, head_dim) int8 of the position itself;
    k_past, v_past (rows, kv_heads, slots, head_dim) int8; mask (rows, slots) int32, 0 or ``MASKED``.
    Weights are integers up to 2^15: their sum stays below 2^31 and weight * value below 2^47 for 65535 slots.
    """
    rows, heads, head_dim = q.shape
    kv_heads = k.shape[1]
    grouped = q.reshape(rows, kv_heads, heads // kv_heads, head_dim)
    past = exact_matmul(grouped, k_past.swapaxes(2, 3)) + mask[:, None, None]
    own = exact_matmul(grouped, k[..., None])
    peak = np.maximum(past.max(axis=-1, keepdims=True, initial=MASKED), own)
    past_weight = _weight(peak - past, scales.exponent.reshape(kv_heads, -1, 1))
    own_weight = _weight(peak - own, scales.exponent.reshape(kv_heads, -1, 1))
    total = past_weight.sum(axis=-1, keepdims=True) + own_weight
    mixed = exact_matmul(past_weight, v_past) + own_weight * v[:, :, None].astype(np.int64)
    output = mixed.astype(np.float32) / total.astype(np.float32) * scales.value[:, None, None]
    return output.reshape(rows, heads * head_dim)


def _weight(below_peak: np.ndarray, exponent: np.ndarray) -> np.ndarray:
    """2^15 * exp of scores given as their distance below the row's peak, int64."""
    table = exp2_table(ATTENTION_BITS)
    steps = np.minimum(below_peak.astype(np.float32) * exponent, np.float32(table.size - 1))
    return table[steps.astype(np.int32)].astype(np.int64)
