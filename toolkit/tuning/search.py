"""From shares of the layers to thresholds, and from a sensitivity to the better of several dealings."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..settings import ReplaySettings
from .shares import deal
from .teacher import Followed, Scene

__all__ = [
    "Candidate",
    "Follow",
    "Measured",
    "candidates",
    "measure",
    "sensitivity",
    "thresholds_for_shares",
    "uniform_threshold",
]

POINTS = (0.0, 0.25, 0.5, 0.75, 1.0)  # at which each layer's sensitivity is measured
TRIALS = 6
EDGES = 1e-3, 1 - 1e-3  # of what is tried for a ratio that is neither nothing nor everything
TOLERANCE = 0.01  # of the ratio over all layers

Follow = Callable[[Sequence[tuple[Scene, ReplaySettings]]], list[Followed]]
Thresholds = tuple[float | None, ...]


@dataclass(frozen=True)
class Measured:
    """Thresholds, and what they did on all scenes: mean divergence in nats a code, shares (layers,) of the eligible."""

    thresholds: Thresholds
    divergence: float
    shares: np.ndarray

    @property
    def ratio(self) -> float:
        return float(self.shares.mean())


@dataclass(frozen=True)
class Candidate:
    """A way to deal the ratio, by name."""

    name: str
    measured: Measured


def measure(
    follow: Follow, scenes: Sequence[Scene], replay: ReplaySettings, thresholds: Thresholds
) -> tuple[Measured, np.ndarray]:
    """And the scores (layers, n) of all scenes."""
    found = follow([(scene, replace(replay, thresholds=thresholds)) for scene in scenes])
    divergence = float(np.mean([one.divergence for one in found]))
    shares = np.mean([one.shares for one in found], axis=0)
    return Measured(thresholds, divergence, shares), np.concatenate([one.scores for one in found], axis=1)


def thresholds_for_shares(
    follow: Follow, scenes: Sequence[Scene], replay: ReplaySettings, shares: np.ndarray
) -> Measured:
    """Thresholds, one a layer, by which each layer replays its share and all of them the shares' mean.

    Replay in a layer changes the scores of those after it, so thresholds are quantiles of the scores of the trial
    before, moved by what that one missed; the trial nearest to the ratio is returned.
    """
    wanted, best = shares.copy(), None
    _, scores = measure(follow, scenes, replay, (None,) * len(shares))
    for _ in range(TRIALS):
        thresholds = tuple(_quantile(*pair) for pair in zip(scores, wanted, strict=True))
        trial, scores = measure(follow, scenes, replay, thresholds)
        if best is None or abs(trial.ratio - shares.mean()) < abs(best.ratio - shares.mean()):
            best = trial
        if abs(best.ratio - shares.mean()) <= TOLERANCE:
            break
        missed = shares - trial.shares
        free = (shares > 0) & (shares < 1)
        wanted = np.where(free, np.clip(wanted + missed, *EDGES), shares)
    return best


def uniform_threshold(follow: Follow, scenes: Sequence[Scene], replay: ReplaySettings, ratio: float) -> Measured:
    """One threshold for all layers, by bisection once a trial lies on either side of the ratio."""
    wanted, best = ratio, None
    much = little = None  # (threshold, ratio)
    _, scores = measure(follow, scenes, replay, ())
    layers = len(scores)
    for _ in range(TRIALS):
        bounded = much and little and math.isfinite(much[0])
        threshold = _between(much, little, ratio) if bounded else _quantile(scores, wanted)
        trial, scores = measure(follow, scenes, replay, (threshold,) * layers)
        if best is None or abs(trial.ratio - ratio) < abs(best.ratio - ratio):
            best = trial
        if abs(best.ratio - ratio) <= TOLERANCE:
            break
        if trial.ratio > ratio:
            much = threshold, trial.ratio
        else:
            little = threshold, trial.ratio
        wanted = float(np.clip(wanted + ratio - trial.ratio, *EDGES))
    return best


def sensitivity(
    follow: Follow, scenes: Sequence[Scene], replay: ReplaySettings, layers: int
) -> tuple[np.ndarray, np.ndarray]:
    """Divergence (layers, points) in nats a code when one layer alone replays, at shares (points,)."""
    _, scores = measure(follow, scenes, replay, (None,) * layers)
    jobs = []
    for layer in range(layers):
        for share in POINTS[1:]:
            thresholds: list[float | None] = [None] * layers
            thresholds[layer] = _quantile(scores[layer], share)
            jobs += [(scene, replace(replay, thresholds=tuple(thresholds))) for scene in scenes]
    found = np.array([one.divergence for one in follow(jobs)]).reshape(layers, len(POINTS) - 1, len(scenes))
    return np.array(POINTS), np.concatenate([np.zeros((layers, 1)), found.mean(axis=2)], axis=1)


def candidates(
    follow: Follow,
    scenes: Sequence[Scene],
    replay: ReplaySettings,
    curves: tuple[np.ndarray, np.ndarray],
    ratio: float,
) -> list[Candidate]:
    """Ways to deal ``ratio``, each with thresholds that were tried: the best is the one of least divergence."""
    equal = np.full(len(curves[1]), ratio)
    dealt = deal(*curves, ratio)
    return [
        Candidate("uniform threshold", uniform_threshold(follow, scenes, replay, ratio)),
        Candidate("equal shares", thresholds_for_shares(follow, scenes, replay, equal)),
        Candidate("by sensitivity", thresholds_for_shares(follow, scenes, replay, dealt)),
        Candidate("between", thresholds_for_shares(follow, scenes, replay, (equal + dealt) / 2)),
    ]


def _quantile(scores: np.ndarray, share: float) -> float | None:
    """The threshold that ``share`` of the scores exceed; None and -inf for nothing and everything."""
    if share <= 0:
        return None
    return -math.inf if share >= 1 else float(np.quantile(scores, 1 - share))


def _between(much: tuple[float, float], little: tuple[float, float], ratio: float) -> float:
    (low, over), (high, under) = much, little
    return low + min(max((over - ratio) / (over - under), 0.1), 0.9) * (high - low)
