"""What a generation did: codes, TAS, replay decisions and times, indexed by frame and place."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..errors import DeviceError
from ..settings import FULL_ATTENTION, AttentionSettings

__all__ = ["Generation"]


@dataclass(frozen=True)
class Generation:
    """One batch of clips. Rows are the conditional sequences of all clips, then the unconditional ones.

    ``tas`` and ``replay`` at [frame, place] belong to the step at that code's (or separator's) own position, the step
    that reads it; codes and logits are of the places of codes alone, the cells.
    The clip's last position predicts nothing and is never run: there ``tas`` is NaN and ``replay`` False, as is
    ``tas`` in frame 0, which has no frame before it.
    """

    prompts: tuple[str, ...]  # one a clip
    codes: np.ndarray  # (clips, frames, cells) int32; (clips, frames, cells, D) with a depth transformer
    tas: (
        np.ndarray
    )  # (frames, places, layers, rows) float32, in units of pre-softmax attention logits; or the bundle's criterion
    replay: np.ndarray  # (frames, places, layers, rows) bool
    thresholds: tuple[float | None, ...]  # one a layer, in the unit of tas; None: the layer never replays
    seconds: np.ndarray  # (frames,) float64, wall time of the frame's steps
    grid: tuple[int, int]  # cells of a frame as (height, width)
    attention: AttentionSettings = FULL_ATTENTION
    cell_places: tuple[int, ...] | None = None  # of a frame, the place of each cell; None: all places are cells
    offsets: np.ndarray | None = None  # (frames,) float64, added to the thresholds of each frame, when recorded
    logits: np.ndarray | None = None  # codes' shape + (codes,) float32 after guidance, when recorded
    interrupted: bool = False  # stopped before the last frame; the frames here are whole
    fault: DeviceError | None = None  # of the device, before the last frame; likewise

    @property
    def complete(self) -> bool:
        return not self.interrupted and self.fault is None

    @property
    def cell_replay(self) -> np.ndarray:
        """``replay`` at the cells: (frames, cells, layers, rows) bool."""
        return self.replay if self.cell_places is None else self.replay[:, list(self.cell_places)]

    @property
    def rows(self) -> int:
        return self.replay.shape[3]

    @property
    def steps(self) -> int:
        """Steps that read a code or a separator: every position of the frames but the last one."""
        return self.replay.shape[0] * self.replay.shape[1] - 1

    @property
    def replay_ratio(self) -> float:
        """Replayed / all MLP evaluations, frame 0 included; NaN where there is none."""
        evaluations = self.steps * self.replay.shape[2] * self.replay.shape[3]
        return float(self.replay.sum()) / evaluations if evaluations > 0 else float("nan")

    @property
    def eligible_replay_ratio(self) -> float:
        """Replayed / evaluations of frames >= 1, the only ones that could replay; NaN for a single frame."""
        places = self.replay.shape[1]
        evaluations = (self.steps - places) * self.replay.shape[2] * self.replay.shape[3]
        return float(self.replay.sum()) / evaluations if evaluations > 0 else float("nan")

    @property
    def skipped_ratio(self) -> float:
        """Fraction of (step, layer) pairs in which every row replayed, frame 0 included.

        One weight stream serves all rows of a step, so only these save the MLP's weight traffic.
        """
        pairs = self.steps * self.replay.shape[2]
        return float(self.replay.all(axis=3).sum()) / pairs if pairs else 0.0

    @property
    def steps_per_second(self) -> float:
        return self.replay.shape[0] * self.replay.shape[1] / float(self.seconds.sum())
