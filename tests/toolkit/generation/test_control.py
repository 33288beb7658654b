"""Refresh frames, a held ratio and replay by lot: what the thresholds are, and that every back end does the same."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from car_like import BACKBONE, LAYOUT

from fastcar.toolkit.backends.protocol import Backend, FrameRecord
from fastcar.toolkit.backends.registry import open_backend
from fastcar.toolkit.bundle.bundle import Bundle
from fastcar.toolkit.config import FrameLayout
from fastcar.toolkit.errors import UsageError
from fastcar.toolkit.generation.control import ReplayControl, pooled_scores
from fastcar.toolkit.generation.run import generate
from fastcar.toolkit.numerics.tas import NEVER
from fastcar.toolkit.settings import ReplaySettings

LONG = FrameLayout(prompt_length=2, frames=40, grid=(5, 5), code_offset=0, codes=8)
UNITS = (0.5, 0.25, 2.0)
ROWS = 2
ALWAYS = float("-inf")


@pytest.fixture(scope="module")
def bundle(bundle_w8a8: Path) -> Bundle:
    return Bundle.open(bundle_w8a8)


@pytest.fixture(scope="module", params=["onnxruntime", "reference"])
def backend(request: pytest.FixtureRequest, bundle: Bundle) -> Backend:
    return open_backend(request.param, bundle, threads=1)


def simulate(replay: ReplaySettings, drift: float = 0.0, frames: int = LONG.frames) -> list[np.ndarray]:
    """Decisions (steps, layers, rows) of every frame, of random scores that drift by so much TAS a frame."""
    control = ReplayControl(replay, UNITS, LONG, frames, seed=5)
    rng, units = np.random.default_rng(7), np.array(UNITS)
    decisions = []
    for frame in range(frames):
        thresholds = control.thresholds(frame)
        tas = rng.normal(3 + drift * frame, 4, (LONG.tokens_per_frame, len(UNITS), ROWS))
        scores = np.round(tas / units[:, None]).astype(np.int64)
        above = pooled_scores(scores.astype(float), replay.policy) > np.broadcast_to(thresholds, (25, 3))[..., None]
        decided = np.broadcast_to(above, scores.shape) & (frame > 0)
        decisions.append(decided)
        codes = np.zeros((LONG.tokens_per_frame, 1), np.int64)
        control.observe(frame, FrameRecord(0, codes, scores, decided, None, 0.0))
    return decisions


@pytest.mark.parametrize("drift", [0.0, 0.5, -1.0])
@pytest.mark.parametrize("policy", ["independent", "mean", "all"])
@pytest.mark.parametrize("thresholds", [(), (0.0, 1.0, -3.0)])
def test_a_held_ratio_is_met_while_scores_drift(thresholds: tuple[float, ...], policy: str, drift: float):
    decisions = simulate(ReplaySettings(thresholds, policy, hold=0.6), drift)
    assert np.mean(decisions[1:]) == pytest.approx(0.6, abs=0.02)
    if not thresholds:
        assert not np.any(decisions[1])  # nothing is known of the scores yet


def test_each_frame_may_have_a_share_of_its_own():
    shares = (0.0, 0.0, *[0.2] * 18, *[0.9] * 20)
    decisions = simulate(ReplaySettings(hold=shares))
    assert np.mean(decisions[2:20]) == pytest.approx(0.2, abs=0.03)
    assert np.mean(decisions[22:]) == pytest.approx(0.9, abs=0.03)


def test_layers_that_never_or_always_replay_stay_and_the_others_make_the_ratio():
    decisions = np.stack(simulate(ReplaySettings((None, ALWAYS, 0.0), hold=0.5)))[2:]
    by_layer = decisions.mean(axis=(0, 1, 3))
    assert by_layer[0] == 0 and by_layer[1] == 1
    assert by_layer[2] == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize("shares", [(0.0,), (1.0,)])
def test_nothing_and_everything_can_be_held(shares: tuple[float]):
    decisions = simulate(ReplaySettings((0.0,) * 3, hold=shares[0]))
    assert np.mean(decisions[2:]) == shares[0]


def test_refresh_frames_compute():
    control = ReplayControl(ReplaySettings((ALWAYS,) * 3, refresh=4), UNITS, LONG, 12, seed=0)
    computes = [frame for frame in range(12) if (control.thresholds(frame) == NEVER).all()]
    assert computes == [0, 4, 8]


def test_lots_are_drawn_for_every_step_and_layer_alike_and_from_the_seed():
    replay = ReplaySettings(random=0.7)
    one, again, other = (ReplayControl(replay, UNITS, LONG, 40, seed) for seed in (1, 1, 2))
    frames = np.stack([one.thresholds(frame) for frame in range(1, 40)])
    assert frames.shape == (39, 25, 3) and set(np.unique(frames)) == {-NEVER, NEVER}
    assert (frames < 0).mean(axis=(0, 1)) == pytest.approx(0.7, abs=0.05)
    assert len({frame.tobytes() for frame in frames}) == 39
    for frame in (20, 3):  # in any order
        assert (again.thresholds(frame) == frames[frame - 1]).all()
    assert (other.thresholds(3) != frames[2]).any()


def test_a_bundle_replays_what_was_drawn_and_refreshes(bundle: Bundle, backend: Backend):
    run = generate(bundle, "left turn", seed=3, replay=ReplaySettings(random=0.5, refresh=2), backend=backend)
    lots = ReplayControl(ReplaySettings(random=0.5, refresh=2), bundle.manifest.tas_unit, LAYOUT, LAYOUT.frames, 3)
    thresholds = [np.broadcast_to(lots.thresholds(f), run.replay.shape[1:3]) for f in range(LAYOUT.frames)]
    read = np.concatenate([t < 0 for t in thresholds])[1:]  # by the position a step reads: the first reads the prompt
    decided = run.replay.reshape(-1, *run.replay.shape[2:])[:-1]
    read[: LAYOUT.tokens_per_frame] = False
    assert (decided == read[..., None]).all() and decided.any()


def test_back_ends_agree_bit_for_bit(bundle: Bundle):
    for replay in (
        ReplaySettings(hold=0.6, policy="all"),
        ReplaySettings(random=0.4),
        ReplaySettings(hold=0.5, refresh=3),
    ):
        runs = [
            generate(bundle, ["left turn", "slow"], seed=4, replay=replay, backend=name, record_logits=True)
            for name in ("onnxruntime", "reference")
        ]
        for name in ("codes", "replay", "logits", "offsets"):
            assert (getattr(runs[0], name) == getattr(runs[1], name)).all()
        assert 0 < runs[0].eligible_replay_ratio < 1


def test_moved_thresholds_are_recorded(bundle: Bundle):
    settings = ReplaySettings((0.0,) * BACKBONE.layers, hold=0.5)
    run = generate(bundle, "slow", seed=1, replay=settings, backend="reference")
    units = np.array(bundle.manifest.tas_unit)
    moved = run.tas > (np.array(run.thresholds) + run.offsets[:, None])[:, None, :, None]
    inside = np.ones(run.replay.shape[:2], bool)
    inside[:, -1] = False  # decided with the frame after
    assert math.isfinite(run.offsets[-1]) and len(units) == BACKBONE.layers
    assert (run.replay[1:][inside[1:]] == moved[1:][inside[1:]]).all()


@pytest.mark.parametrize(
    "settings, named",
    [
        ({"refresh": 1}, "--refresh"),
        ({"hold": 1.5}, "--hold-replay-ratio"),
        ({"hold": (0.5, -0.1)}, "--hold-replay-ratio"),
        ({"random": float("nan")}, "--random"),
        ({"random": 0.5, "thresholds": (1.0,)}, "random replay"),
    ],
)
def test_what_cannot_be_is_refused(settings: dict, named: str):
    with pytest.raises(UsageError, match=named):
        ReplaySettings(**settings)


def test_wrong_numbers_are_refused():
    with pytest.raises(UsageError, match="2 values"):
        ReplayControl(ReplaySettings((1.0, 2.0)), UNITS, LONG, 4, 0)
    with pytest.raises(UsageError, match="3 ratios"):
        ReplayControl(ReplaySettings(hold=(0.1, 0.2, 0.3)), UNITS, LONG, 4, 0)
