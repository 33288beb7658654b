"""Which thresholds the steps of each frame get: fixed, refreshed, steered towards a ratio, or drawn by lot.

All of it happens on the host, between frames, in IEEE arithmetic on integers the back ends agree on; so it is the same
on every back end and needs nothing of an engine.
"""

from __future__ import annotations

import math

import numpy as np

from ..backends.protocol import FrameRecord
from ..config import FrameLayout
from ..errors import UsageError
from ..numerics.tas import NEVER, integer_threshold
from ..settings import ReplaySettings

__all__ = ["ReplayControl", "pooled_scores"]

LOTS = np.uint64(0xFFFF_FFFF_FFFF_FFFF)  # of the key (seed, stream): a clip's draws have its number there
LOT_BITS = 53


class ReplayControl:
    """The thresholds of a run, frame by frame.

    ``units`` (layers,): TAS of one integer score, a layer each. With ``hold`` all thresholds are moved by one
    ``offset``, in units of TAS: what would have given the last frame the share that this one is to have, and that share
    makes up for what the frames before missed. A layer that never or always replays stays as it is. UsageError when
    there are not as many thresholds as layers, or shares as frames.
    """

    def __init__(
        self, replay: ReplaySettings, units: tuple[float, ...], layout: FrameLayout, frames: int, seed: int
    ) -> None:
        self.replay, self.layout, self.frames, self.seed = replay, layout, frames, seed
        self.units = np.array(units)
        thresholds = replay.thresholds or (None,) * len(units)
        if len(thresholds) != len(units):
            raise UsageError(
                "--threshold", f"{len(thresholds)} values", f"1 or {len(units)}, one a layer", "List one a layer."
            )
        self.base = thresholds
        self.shares = _shares(replay, frames)
        self.offset = 0.0
        self.offsets: list[float] = []  # of the frames so far
        self._owed = 0.0  # evaluations that earlier frames should have replayed and did not
        if self.shares is not None and not replay.thresholds:
            self.base, self.offset = (0.0,) * len(units), math.inf  # the first frame is computed, and its scores tell

    def thresholds(self, frame: int) -> np.ndarray:
        """Integer scores (layers,) int64 for ``frame``, or (places, layers) where every step has its own."""
        self.offsets.append(self.offset)
        if self.replay.refreshed(frame):
            return np.full(len(self.units), NEVER, np.int64)
        if self.replay.random is not None:
            return np.where(self._lots(frame) < self.replay.random, -NEVER, NEVER)
        moved = [threshold if threshold is None else threshold + self.offset for threshold in self.base]
        return np.array([integer_threshold(*pair) for pair in zip(moved, self.units, strict=True)], np.int64)

    def observe(self, frame: int, record: FrameRecord) -> None:
        """What ``frame`` did decides the offset of the next one. Its first step still reads the frame before."""
        if self.shares is None or frame + 1 >= self.frames or frame == 0:
            return
        self._owed += self.shares[frame] * record.replay.size - int(record.replay.sum())
        shares = self.shares[frame + 1] + self._owed / record.replay.size
        self.offset = self._offset_for(min(max(shares, 0.0), 1.0), record)

    def _offset_for(self, share: float, record: FrameRecord) -> float:
        """The offset that would have replayed ``share`` of a frame's evaluations, ages left out of account."""
        free = [layer for layer, base in enumerate(self.base) if base is not None and math.isfinite(base)]
        if not free:
            return self.offset
        scores = pooled_scores(record.scores * self.units[:, None], self.replay.policy)
        margins = np.sort(
            (scores - np.array([0.0 if b is None else b for b in self.base])[:, None])[:, free], axis=None
        )
        always = sum(base == -math.inf for base in self.base)
        wanted = (share * len(self.base) - always) / len(free) * margins.size  # of those that a threshold decides
        count = min(max(round(wanted), 0), margins.size)
        if count == 0:
            return math.inf
        return -math.inf if count == margins.size else float(margins[margins.size - count - 1])

    def _lots(self, frame: int) -> np.ndarray:
        """(places, layers) float64 in [0, 1): of Philox-4x64-10, key (seed, 2^64 - 1), in the order of steps."""
        shape = (self.layout.tokens_per_frame, len(self.units))
        stream = np.random.Philox(key=np.array([self.seed, LOTS], np.uint64))
        stream.advance(frame * -(-math.prod(shape) // 4))  # four draws a count
        return (stream.random_raw(math.prod(shape)) >> np.uint64(64 - LOT_BITS)).reshape(shape) * 2.0**-LOT_BITS


def pooled_scores(scores: np.ndarray, policy: str) -> np.ndarray:
    """What decides of scores (..., rows): each row's own, the mean of the rows, or the least of them: (..., n)."""
    if policy == "mean":
        return scores.mean(axis=-1, keepdims=True)
    return scores.min(axis=-1, keepdims=True) if policy == "all" else scores


def _shares(replay: ReplaySettings, frames: int) -> tuple[float, ...] | None:
    if replay.hold is None:
        return None
    shares = replay.hold if isinstance(replay.hold, tuple) else (replay.hold,) * frames
    if len(shares) != frames:
        raise UsageError("--hold-replay-ratio", f"{len(shares)} ratios", f"{frames}, one a frame", "List one a frame.")
    return shares
