"""Thresholds for a wanted replay ratio, from short trial runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..backends.protocol import Backend
from ..bundle.bundle import Bundle
from ..errors import UsageError
from ..settings import ReplaySettings, SamplingSettings
from .record import Generation
from .run import check_frames, generate

__all__ = ["RatioCalibration", "thresholds_for_ratio"]

TOLERANCE = 0.01
TRIALS = 6
TRIAL_FRAMES = 6  # TAS drifts over a clip's first frames; a trial has to see some of it
TRIAL_SEED = 0x7A5  # not a seed a user is likely to generate with


@dataclass(frozen=True)
class RatioCalibration:
    """``threshold``, the same for every layer, gave ``achieved`` of the eligible evaluations in the last trial."""

    threshold: float
    achieved: float
    trials: int


def thresholds_for_ratio(
    bundle: Bundle,
    backend: Backend,
    prompt: str | Sequence[str],
    ratio: float,
    *,
    frames: int | None = None,
    sampling: SamplingSettings | None = None,
    replay: ReplaySettings = ReplaySettings(),
    on_trial: Callable[[int, int], None] | None = None,
) -> RatioCalibration:
    """One threshold for all layers so that ``ratio`` of the eligible MLP evaluations replay.

    Replaying changes the scores that follow, so each trial runs with the last estimate and takes the quantile of
    the scores it saw, corrected by the ratio it missed. UsageError for a ratio outside 0..1 or a single frame, which
    has nothing eligible.
    """
    if not 0 <= ratio <= 1:
        raise UsageError("--replay-ratio", str(ratio), "0 (dense) to 1 (everything eligible)", "Choose a ratio.")
    frames = check_frames(bundle, frames)
    if frames < 2:
        raise UsageError("--frames", str(frames), "at least 2 with --replay-ratio: frame 0 never replays", "Ask for more.")
    layers = bundle.manifest.config.layers
    if ratio in (0.0, 1.0):
        return RatioCalibration(float("inf") if ratio == 0 else float("-inf"), ratio, 0)
    wanted, threshold, best = ratio, None, None
    for trial in range(TRIALS):
        if on_trial:
            on_trial(trial, TRIALS)
        settings = replace(replay, thresholds=(threshold,) * layers)
        run = generate(
            bundle, prompt, frames=min(frames, TRIAL_FRAMES), seed=TRIAL_SEED, sampling=sampling, replay=settings, backend=backend
        )
        if threshold is not None:
            achieved = run.eligible_replay_ratio
            if best is None or abs(achieved - ratio) < abs(best.achieved - ratio):
                best = RatioCalibration(threshold, achieved, trial + 1)
            if abs(achieved - ratio) <= TOLERANCE:
                break
            wanted = float(np.clip(wanted + ratio - achieved, 0.0, 1.0))
        threshold = float(np.quantile(_pooled(run, replay.policy), 1 - wanted))
    return best


def _pooled(run: Generation, policy: str) -> np.ndarray:
    """The scores that decide, NaN left out: a row's own, the mean of the rows, or the least of them."""
    scores = run.tas[1:]
    if policy == "mean":
        scores = scores.mean(axis=-1)
    elif policy == "all":
        scores = scores.min(axis=-1)
    return scores[~np.isnan(scores)]
