"""The arrays behind the figures: replay ratios by frame, layer and place, and TAS counted into bins."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..generation.record import Generation

__all__ = ["TasBins", "frame_layer_ratio", "layer_ratio", "place_ratio", "tas_bins"]


@dataclass(frozen=True)
class TasBins:
    """Evaluations with a TAS, counted by its value. ``edges`` (bins + 1,) in units of TAS."""

    edges: np.ndarray
    computed: np.ndarray  # (layers, bins) int
    replayed: np.ndarray  # (layers, bins) int


def evaluated(run: Generation) -> np.ndarray:
    """(frames, places) bool: the steps that ran, all but the clip's last position."""
    ran = np.ones(run.replay.shape[:2], bool)
    ran[-1, -1] = False
    return ran


def frame_layer_ratio(run: Generation) -> np.ndarray:
    """Replayed / evaluations of each frame and layer, over places and rows: (frames, layers) float64, 0 .. 1.

    A frame of one place that is the clip's last has no evaluation and counts as 0.
    """
    evaluations = evaluated(run).sum(axis=1) * run.rows
    return run.replay.sum(axis=(1, 3)) / np.maximum(evaluations, 1)[:, None]


def layer_ratio(run: Generation) -> np.ndarray:
    """Replayed / evaluations of frames >= 1 by layer: (layers,) float64, NaN for a single frame."""
    evaluations = int(evaluated(run)[1:].sum()) * run.rows
    replayed = run.replay[1:].sum(axis=(0, 1, 3))
    return replayed / evaluations if evaluations else np.full(run.replay.shape[2], np.nan)


def place_ratio(run: Generation, rows: tuple[int, ...]) -> np.ndarray:
    """Share of (layer, row) pairs that replayed at each cell: (frames, grid height, grid width) float64."""
    share = run.cell_replay[..., list(rows)].mean(axis=(2, 3))
    return share.reshape(len(share), *run.grid)


def _edges(low: float, high: float, bins: int, thresholds: set[float]) -> np.ndarray:
    """Edges around [low, high]; one of them on the threshold when there is only one, so that it parts the bars."""
    width = max((high - low) / (bins - 2), 1e-3)
    start = low - width / 2
    for threshold in thresholds if len(thresholds) == 1 else ():
        start = threshold - width * math.ceil((threshold - low) / width + 0.25)
    return start + width * np.arange(bins + 1)


def tas_bins(run: Generation, bins: int = 48) -> TasBins | None:
    """Every finite TAS counted by layer and decision; None when there is none, as in a single frame.

    The bins span the finite thresholds too when these lie near the scores, so that the line can be drawn among them.
    """
    finite = np.isfinite(run.tas)
    if not finite.any():
        return None
    low, high = float(run.tas[finite].min()), float(run.tas[finite].max())
    reach = max(high - low, 1.0)
    near = [t for t in run.thresholds if t is not None and low - reach <= t <= high + reach]
    low, high = min([low, *near]), max([high, *near])
    edges = _edges(low, high, bins, set(near))

    def count(chosen: np.ndarray) -> np.ndarray:
        layers = range(run.tas.shape[2])
        return np.stack([np.histogram(run.tas[:, :, n][chosen[:, :, n]], edges)[0] for n in layers])

    return TasBins(edges, count(finite & ~run.replay), count(finite & run.replay))
