"""Thresholds for a wanted replay ratio, from short trial runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..backends.protocol import Backend
from ..bundle.bundle import Bundle
from ..errors import UsageError
from ..settings import AttentionSettings, ReplaySettings, SamplingSettings
from .control import pooled_scores
from .record import Generation
from .run import check_frames, generate

__all__ = ["PROMISED", "RatioCalibration", "check_ratio", "thresholds_for_ratio"]

PROMISED = 0.05  # how near to the wanted ratio a run comes; a larger miss is told
TOLERANCE = 0.01
TRIALS = 8
TRIAL_FRAMES = 16  # TAS drifts along a clip: 6 of 16 frames miss the ratio of the whole by 0.05
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
    seed: int = TRIAL_SEED,
    sampling: SamplingSettings | None = None,
    replay: ReplaySettings | None = None,
    attention: AttentionSettings | None = None,
    on_trial: Callable[[int, int], None] | None = None,
) -> RatioCalibration:
    """One threshold for all layers so that ``ratio`` of the eligible MLP evaluations replay.

    Each trial is a run with the last estimate. The best one is returned: see how near ``achieved`` came. With the
    ``seed`` of a run to come the threshold is found for that very clip; another clip's ratio differs by a few percent.
    ``replay`` gives policy and limit on age, ``attention`` what the run to come will see. UsageError for a ratio
    outside 0..1 or above what the limit on age allows, or a single frame, which has nothing eligible. KeyboardInterrupt
    is raised: half a trial gives another threshold.
    """
    frames = check_frames(bundle, frames)
    replay = replay or ReplaySettings()
    check_ratio(ratio, frames, replay.max_age, replay.refresh)
    layers = bundle.manifest.config.layers
    if ratio in (0.0, 1.0):
        return RatioCalibration(float("inf") if ratio == 0 else float("-inf"), ratio, 0)
    limited = replay.max_age or replay.refresh  # shows at the clip's own length
    trial_frames = frames if limited else min(frames, TRIAL_FRAMES)
    search, threshold, best = _Search(ratio, replay.policy), None, None
    for trial in range(TRIALS):
        if on_trial:
            on_trial(trial, TRIALS)
        settings = replace(replay, thresholds=(threshold,) * layers)
        run = generate(
            bundle,
            prompt,
            frames=trial_frames,
            seed=seed,
            sampling=sampling,
            replay=settings,
            attention=attention,
            backend=backend,
        )
        if not run.complete:
            raise run.fault or KeyboardInterrupt
        if threshold is not None:
            achieved = run.eligible_replay_ratio
            if best is None or abs(achieved - ratio) < abs(best.achieved - ratio):
                best = RatioCalibration(threshold, achieved, trial + 1)
            if abs(achieved - ratio) <= TOLERANCE:
                break
        threshold = search.next(threshold, run)
    return best


class _Search:
    """The next threshold to try.

    Replaying changes the scores that follow, so the quantile of a run's scores is only a start: once one trial has
    replayed too much and one too little, the next lies between the two, in proportion to what they missed.
    """

    def __init__(self, ratio: float, policy: str) -> None:
        self.ratio, self.policy, self.wanted = ratio, policy, ratio
        self.much: tuple[float, float] | None = None  # (threshold, achieved)
        self.little: tuple[float, float] | None = None

    def next(self, threshold: float | None, run: Generation) -> float:
        if threshold is not None:
            achieved = run.eligible_replay_ratio
            self.wanted = min(max(self.wanted + self.ratio - achieved, 0.0), 1.0)
            if achieved > self.ratio:
                self.much = threshold, achieved
            else:
                self.little = threshold, achieved
        if self.much is None or self.little is None:
            return float(np.quantile(_pooled(run, self.policy), 1 - self.wanted))
        (low, over), (high, under) = self.much, self.little
        share = min(max((over - self.ratio) / (over - under), 0.1), 0.9)
        return low + share * (high - low)


def check_ratio(
    ratio: float,
    frames: int,
    max_age: int | None = None,
    refresh: int | None = None,
    option: str = "--replay-ratio",
) -> None:
    """UsageError for a ratio that no threshold can give a clip of ``frames``."""
    if not 0 <= ratio <= 1:
        raise UsageError(option, str(ratio), "0 (dense) to 1 (everything eligible)", "Choose a ratio.")
    if frames < 2:
        raise UsageError("--frames", str(frames), f"at least 2 with {option}: frame 0 never replays", "Ask for more.")
    highest = _highest_ratio(frames, max_age, refresh)
    if ratio > highest + PROMISED:
        given = {"--max-age": max_age, "--refresh": refresh}
        causes = " ".join(f"{name} {value}" for name, value in given.items() if value is not None)
        limit = f"at most {highest:.2f} with {causes} in {frames} frames"
        raise UsageError(option, str(ratio), limit, "Ask for less, or compute less often.")


def _highest_ratio(frames: int, max_age: int | None, refresh: int | None) -> float:
    """Share of the eligible frames that replay when all may: a refresh, or ``max_age`` of them, makes one compute."""
    replays, age = 0, 0
    for frame in range(1, frames):
        computes = (refresh is not None and frame % refresh == 0) or (max_age is not None and age >= max_age)
        age = 0 if computes else age + 1
        replays += not computes
    return replays / (frames - 1)


def _pooled(run: Generation, policy: str) -> np.ndarray:
    """The scores that decide, NaN left out."""
    scores = pooled_scores(run.tas[1:], policy)
    return scores[~np.isnan(scores)]
