"""Sampling with guidance, temperature, top-k and top-p, decided by integers and a supplied uniform."""

from __future__ import annotations

import numpy as np

from .tables import EXP_FRACTION_BITS, SAMPLE_BITS, exp2_table

__all__ = ["LOG2_STEPS", "guided_logits", "sample"]

LOG2_STEPS = np.float32(np.log2(np.e) * (1 << EXP_FRACTION_BITS))  # natural logit -> table steps


def guided_logits(conditional: np.ndarray, unconditional: np.ndarray, guidance: float) -> np.ndarray:
    """u + guidance * (c - u) (arXiv 2207.12598, eq. 6 with w = guidance - 1). Without guidance pass c twice."""
    return unconditional + np.float32(guidance) * (conditional - unconditional)


def sample(logits: np.ndarray, uniform: np.ndarray, inverse_temperature: float, top_k: int, top_p: int) -> np.ndarray:
    """One code a clip, (clips,) int64.

    logits (clips, codes) float32; uniform (clips,) integers below 2^24; top_p in 1..65536, units of 2^-16.
    Codes are ranked by logit, ties by the lower index, so top_k 1 is argmax. Weights are 24-bit integers:
    cumulative * 2^16 <= codes * 2^40 and uniform * total <= codes * 2^48 stay below 2^63 for 32768 codes.
    """
    scaled = logits * np.float32(inverse_temperature)
    order = np.argsort(-scaled, axis=-1, kind="stable")
    ranked = np.take_along_axis(scaled, order, axis=-1)
    table = exp2_table(SAMPLE_BITS)
    steps = np.minimum((ranked[:, :1] - ranked) * LOG2_STEPS, np.float32(table.size - 1)).astype(np.int32)
    weight = np.where(np.arange(logits.shape[1]) < top_k, table[steps], 0).astype(np.int64)
    before = np.cumsum(weight, axis=-1) - weight
    weight = np.where(before * 65536 < top_p * weight.sum(axis=-1, keepdims=True), weight, 0)
    cumulative = np.cumsum(weight, axis=-1)
    target = uniform.astype(np.int64) * cumulative[:, -1] >> 24
    rank = (cumulative <= target[:, None]).sum(axis=-1)
    return np.take_along_axis(order, rank[:, None], axis=-1)[:, 0]
