"""Attention of every place of a map over all places, with the integer softmax of the backbone's attention."""

from __future__ import annotations

import numpy as np

from .linear import MAX_ABS_FLOOR, exact_matmul
from .tables import ATTENTION_BITS, EXP_FRACTION_BITS, exp2_table

__all__ = ["MAX_PLACES", "map_attention", "steps_of_score"]

MAX_PLACES = 65535  # weights are up to 2^15: their sum stays below 2^31, weight bytes * values as well


def map_attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """softmax(q.k / sqrt(channels)) v over the places of one map; all (channels, height, width) float32.

    q, k and v are brought to int8 by their max-abs. Scores are below 2^14 * channels: int32 up to 131071 channels.
    ValueError for more places than ``MAX_PLACES``.
    """
    channels, places = q.shape[0], q[0].size
    if places > MAX_PLACES:
        raise ValueError(f"attention over {places} places; expected at most {MAX_PLACES}")
    (q_int, q_scale), (k_int, k_scale), (v_int, v_scale) = (_int8(x.reshape(channels, -1)) for x in (q, k, v))
    score = exact_matmul(k_int.T, q_int)  # a column for each place that asks
    below = (score.max(axis=0, keepdims=True) - score).astype(np.float32)
    table = exp2_table(ATTENTION_BITS)
    steps = np.minimum(below * (q_scale * k_scale * steps_of_score(channels)), np.float32(table.size - 1))
    weight = table[steps.astype(np.int32)].astype(np.int64)
    mixed = exact_matmul(v_int, weight).astype(np.float32) / weight.sum(axis=0).astype(np.float32)
    return (mixed * v_scale).reshape(q.shape)


def steps_of_score(channels: int) -> np.float32:
    """Table steps of a score of 1: log2(e) / sqrt(channels), with 10 fractional bits."""
    return np.float32(np.log2(np.e) * (1 << EXP_FRACTION_BITS) / np.sqrt(channels))


def _int8(x: np.ndarray) -> tuple[np.ndarray, np.float32]:
    scale = np.maximum(np.abs(x).max(), MAX_ABS_FLOOR) / np.float32(127)
    return np.rint(x / scale).astype(np.int64), scale
