"""Temporal Attention Score and the decision to replay."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..config import TAS_HEADS
from .linear import exact_matmul

__all__ = ["NEVER", "Pooling", "integer_threshold", "replay_decision", "tas_unit", "temporal_attention_score"]

NEVER = 1 << 40  # no score reaches it: 128^2 * 127 * head_dim * heads < 2^36; times 32 rows it still fits int64


def temporal_attention_score(
    q: np.ndarray, k_before: np.ndarray, multiplier: np.ndarray, tas_heads: str = "mean"
) -> np.ndarray:
    """sum over heads of multiplier[h] * <q[h], k_before[h]>: (rows,) int64.

    q (rows, heads, head_dim) int8; k_before (rows, kv_heads, head_dim) int8, cached at the same place one frame
    earlier; multiplier (heads,) int32 in -127..127. With ``tas_unit`` this is the mean pre-softmax attention logit
    (arXiv 2505.14709, Temporal Attention Score), or a weighted mean where the multipliers were made so.

    ``tas_heads`` ``max`` or ``min``: heads times the largest or least term instead of the sum, so with the same unit
    the largest or least logit of a head; the bound of a sum of ``heads`` terms holds for it, too. ValueError for any
    other than these and ``mean``.
    """
    if tas_heads not in TAS_HEADS:
        raise ValueError(f"tas_heads {tas_heads!r}; expected one of {', '.join(TAS_HEADS)}")
    rows, heads, head_dim = q.shape
    grouped = q.reshape(rows, k_before.shape[1], -1, head_dim)
    terms = exact_matmul(grouped, k_before[..., None]).reshape(rows, heads) * multiplier
    if tas_heads == "mean":
        return terms.sum(axis=-1)
    return heads * (terms.max(axis=-1) if tas_heads == "max" else terms.min(axis=-1))


def tas_unit(tas_scale: float, heads: int, head_dim: int) -> float:
    """TAS = score * unit: the common scale of q.k, the number of heads a score counts, and 1 / sqrt(head_dim)."""
    return tas_scale / (heads * head_dim**0.5)


def integer_threshold(threshold: float | None, unit: float) -> int:
    """Largest integer score that does not replay: TAS = score * unit > threshold exactly when score > it.

    The quotient alone may round across an integer, so its neighbours are looked at too.
    """
    if threshold is None:
        return NEVER
    score = int(np.floor(np.clip(threshold / unit, -NEVER, NEVER)))
    if score < NEVER and (score + 1) * unit <= threshold:
        return score + 1
    return score - 1 if score > -NEVER and score * unit > threshold else score


@dataclass(frozen=True)
class Pooling:
    """Which rows decide together, as 0/1 matrices (rows, rows) and counts (rows,).

    A row passes when the scores pooled for it exceed threshold * ``pooled``, and replays when ``quorum`` of the
    rows it votes with pass and may replay. ``independent``: each alone; ``mean``: the mean score of all rows
    decides; ``all``: a row replays only if every row would.
    """

    pool: np.ndarray
    vote: np.ndarray

    @classmethod
    def of(cls, policy: str, rows: int) -> Pooling:
        """ValueError for a policy other than independent, mean, all."""
        alone, together = np.eye(rows, dtype=np.int64), np.ones((rows, rows), np.int64)
        choices = {"independent": (alone, alone), "mean": (together, together), "all": (alone, together)}
        if policy not in choices:
            raise ValueError(f"policy {policy!r}; expected one of {', '.join(choices)}")
        return cls(*choices[policy])

    @property
    def pooled(self) -> np.ndarray:
        return self.pool.sum(axis=1)

    @property
    def quorum(self) -> np.ndarray:
        return self.vote.sum(axis=1)


def replay_decision(
    score: np.ndarray, threshold: int, eligible: np.ndarray, age: np.ndarray, max_age: int, pooling: Pooling
) -> np.ndarray:
    """(rows,) bool, whether each row replays.

    ``eligible`` (rows,) bool: a frame lies before; ``age`` (rows,): how often the cached value was replayed.
    ``max_age`` 1 is the "never twice in a row" guard of the authors' release.
    """
    above = exact_matmul(pooling.pool, score) > threshold * pooling.pooled
    may = above & eligible & (age < max_age)
    return exact_matmul(pooling.vote, may.astype(np.int64)) >= pooling.quorum
