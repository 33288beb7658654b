"""A wanted replay ratio is met by a run with another seed; what cannot be met is refused or told."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from car_like import BACKBONE, LAYOUT

from fastcar.toolkit.backends.protocol import Backend
from fastcar.toolkit.backends.registry import open_backend
from fastcar.toolkit.bundle.bundle import Bundle
from fastcar.toolkit.errors import UsageError
from fastcar.toolkit.generation.calibrate import PROMISED, RatioCalibration, check_ratio, thresholds_for_ratio
from fastcar.toolkit.generation.run import generate
from fastcar.toolkit.settings import AttentionSettings, ReplaySettings

CLIPS = ["left turn", "slow", "braking", "straight", "sliding", "off track", "right turn", "accelerating"] * 3
"""So many that the ratio of another seed differs by less than the promise from chance alone."""


@pytest.fixture(scope="module")
def bundle(bundle_w8a8: Path) -> Bundle:
    return Bundle.open(bundle_w8a8)


@pytest.fixture(scope="module")
def backend(bundle: Bundle) -> Backend:
    return open_backend("onnxruntime", bundle, threads=1)


def achieved(bundle: Bundle, backend: Backend, found: RatioCalibration, replay: ReplaySettings) -> float:
    settings = ReplaySettings((found.threshold,) * BACKBONE.layers, replay.policy, replay.max_age)
    return generate(bundle, CLIPS, seed=99, replay=settings, backend=backend).eligible_replay_ratio


@pytest.mark.parametrize("ratio", [0.2, 0.5, 0.8])
def test_another_seed_lands_within_the_promise(bundle: Bundle, backend: Backend, ratio: float):
    found = thresholds_for_ratio(bundle, backend, CLIPS, ratio)
    assert abs(found.achieved - ratio) <= PROMISED
    assert abs(achieved(bundle, backend, found, ReplaySettings()) - ratio) <= PROMISED


@pytest.mark.parametrize("policy", ["mean", "all"])
@pytest.mark.parametrize("ratio", [0.3, 0.7])
def test_rows_that_decide_together(bundle: Bundle, backend: Backend, policy: str, ratio: float):
    """One decision a step and layer: 46 in all, each of which moves the rest, so the ratio is coarse."""
    replay = ReplaySettings(policy=policy)
    found = thresholds_for_ratio(bundle, backend, CLIPS[:2], ratio, replay=replay)
    assert abs(found.achieved - ratio) <= 2 * PROMISED


@pytest.mark.parametrize("ratio", [0, 0.0, 1, 1.0])
def test_nothing_and_everything_are_exact(bundle: Bundle, backend: Backend, ratio: float):
    found = thresholds_for_ratio(bundle, backend, "slow", ratio)
    assert found.trials == 0 and found.achieved == ratio
    assert achieved(bundle, backend, found, ReplaySettings()) == ratio


def test_the_threshold_is_the_same_every_time(bundle: Bundle, backend: Backend):
    found = [thresholds_for_ratio(bundle, backend, "slow", 0.5, frames=3) for _ in range(2)]
    assert found[0] == found[1]


def test_trials_are_told(bundle: Bundle, backend: Backend):
    seen: list[tuple[int, int]] = []
    found = thresholds_for_ratio(bundle, backend, "slow", 0.5, frames=3, on_trial=lambda *trial: seen.append(trial))
    assert [trial for trial, _ in seen] == list(range(len(seen)))
    assert 1 < found.trials <= len(seen) <= seen[0][1]


def test_a_limit_on_age_is_part_of_the_trials(bundle: Bundle, backend: Backend):
    replay = ReplaySettings(max_age=1)
    found = thresholds_for_ratio(bundle, backend, CLIPS, 0.4, replay=replay)
    assert abs(found.achieved - 0.4) <= PROMISED
    assert abs(achieved(bundle, backend, found, replay) - 0.4) <= PROMISED


def test_trials_see_what_the_run_will_see(bundle: Bundle, backend: Backend, monkeypatch: pytest.MonkeyPatch):
    start, seen = backend.start, []
    monkeypatch.setattr(backend, "start", lambda *given: seen.append(given[-2]) or start(*given))
    attention = AttentionSettings(3, 5)
    found = thresholds_for_ratio(bundle, backend, CLIPS[:8], 0.5, seed=4, attention=attention)
    assert seen == [attention] * found.trials or seen == [attention] * 8
    replay = ReplaySettings((found.threshold,) * BACKBONE.layers)
    run = generate(bundle, CLIPS[:8], seed=4, replay=replay, attention=attention, backend=backend)
    assert run.eligible_replay_ratio == found.achieved, "the run to come is one of the trials"


def test_the_highest_ratio_under_a_limit_on_age_is_what_a_run_reaches(bundle: Bundle, backend: Backend):
    for max_age in (1, 2, 3, 4):
        settings = ReplaySettings((float("-inf"),) * BACKBONE.layers, max_age=max_age)
        run = generate(bundle, "slow", replay=settings, backend=backend)
        reached = run.replay[1:, 0].mean()
        check_ratio(reached + 0.9 * PROMISED if reached < 1 else 1.0, LAYOUT.frames, max_age)
        if reached < 1:
            with pytest.raises(UsageError, match=f"at most {reached:.2f} with --max-age {max_age}"):
                check_ratio(reached + 1.1 * PROMISED, LAYOUT.frames, max_age)


def test_a_ratio_out_of_reach_is_refused_before_any_trial(bundle: Bundle, backend: Backend):
    with pytest.raises(UsageError, match=r"--replay-ratio: 0.8; expected at most 0\.50 with --max-age 1"):
        thresholds_for_ratio(
            bundle, backend, "slow", 0.8, replay=ReplaySettings(max_age=1), on_trial=lambda *_: pytest.fail("ran")
        )


def test_a_miss_is_not_hidden(bundle: Bundle, backend: Backend):
    """Two frames of one clip decide in few steps: with ``all`` the scores at hand may not allow the ratio."""
    found = thresholds_for_ratio(bundle, backend, CLIPS, 0.03, frames=2, replay=ReplaySettings(policy="all"))
    assert 0 <= found.achieved <= 1 and np.isfinite(found.threshold)


@pytest.mark.parametrize("ratio", [-0.1, 1.01, float("nan"), float("inf")])
def test_a_ratio_that_is_none(bundle: Bundle, backend: Backend, ratio: float):
    with pytest.raises(UsageError, match="--replay-ratio"):
        thresholds_for_ratio(bundle, backend, "slow", ratio)


def test_a_single_frame_has_no_ratio(bundle: Bundle, backend: Backend):
    with pytest.raises(UsageError, match="--frames: 1; expected at least 2"):
        thresholds_for_ratio(bundle, backend, "slow", 0.5, frames=1)


def test_an_interrupted_trial_gives_no_threshold(bundle: Bundle, backend: Backend):
    decode, calls = backend.decode, []

    class Interrupted:
        config, layout, name = backend.config, backend.layout, backend.name
        start, prefill = staticmethod(backend.start), staticmethod(backend.prefill)

        @staticmethod
        def decode(*arguments: np.ndarray) -> object:
            calls.append(arguments)
            if len(calls) == 7:  # in the second frame of the second trial
                raise KeyboardInterrupt
            return decode(*arguments)

    with pytest.raises(KeyboardInterrupt):
        thresholds_for_ratio(bundle, Interrupted(), "slow", 0.5)
    assert len(calls) == 7
