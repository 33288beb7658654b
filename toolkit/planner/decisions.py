"""Decisions to plan with: as many replays as the ratio says, spread evenly, and the same at every call."""

from __future__ import annotations

import numpy as np

from ..settings import POLICIES

__all__ = ["replay_masks"]


def replay_masks(steps: int, layers: int, rows: int, ratio: float, policy: str) -> np.ndarray:
    """(steps, layers) uint32, bit r: row r replays. Of all evaluations, ``ratio`` replays to the nearest one.

    With ``all`` and ``mean`` the rows replay together. With ``independent`` each has decisions of its own, here
    without any relation to the others': the rows of a clip in fact resemble each other, so of the steps' passes more
    are skipped than this plans. ValueError for a ratio outside 0..1 or an unknown policy.
    """
    if not 0 <= ratio <= 1 or policy not in POLICIES:
        raise ValueError(f"ratio {ratio}, policy {policy!r}; expected 0..1 and one of {', '.join(POLICIES)}")
    draws = rows if policy == "independent" else 1
    places = steps * layers
    flags = np.zeros((draws, places), bool)
    for row in range(draws):
        order = np.random.default_rng([places, row]).permutation(places)
        flags[row, order[: round(ratio * places)]] = True
    flags = np.broadcast_to(flags, (rows, places)) if draws == 1 else flags
    bits = flags.astype(np.uint32) << np.arange(rows, dtype=np.uint32)[:, None]
    return np.bitwise_or.reduce(bits, axis=0).reshape(steps, layers)
