"""The share that a frame has to replay to take a given time, and that a run with it takes about that time."""

from __future__ import annotations

from pathlib import Path

import pytest
from car_like import LAYOUT
from packed_bundle import packed_copy

from fastcar.boards import load_board
from fastcar.hls.modes import count_modes
from fastcar.overlays import load_engine
from fastcar.toolkit.backends.registry import open_backend
from fastcar.toolkit.bundle.bundle import Bundle
from fastcar.toolkit.errors import UsageError
from fastcar.toolkit.generation.run import generate
from fastcar.toolkit.planner.frame_time import shares_for_time
from fastcar.toolkit.settings import ReplaySettings, SamplingSettings

SAMPLING = SamplingSettings(guidance=2.0)


@pytest.fixture(scope="module")
def bundle(bundle_w8a8: Path, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return Bundle.open(packed_copy(bundle_w8a8, tmp_path_factory.mktemp("packed") / "kv260", load_engine("kv260")))


def modes_of(bundle: Bundle, replay: ReplaySettings) -> tuple[dict[str, float], object]:
    """Seconds of a clip by mode, counted by the C simulation for the decisions of a run."""
    backend = open_backend("csim", bundle)
    run = generate(bundle, "slow", seed=1, sampling=SAMPLING, replay=replay, backend=backend)
    rate = load_board("kv260").sustained_beats_per_cycle(bundle.manifest.engine.clock_mhz)
    starts = [(start.control, start.replays) for start in backend.starts if start.decodes]
    found = count_modes(backend.library, backend.packed.program, starts, rate)
    clock = bundle.manifest.engine.clock_mhz * 1e6
    return {mode: counts.counters["cycles"] / clock for mode, counts in found.items()}, run


def test_shares_fall_as_the_time_grows_and_a_run_that_holds_them_is_that_fast(bundle: Bundle):
    layers, frames = bundle.manifest.config.layers, LAYOUT.frames
    times, _ = modes_of(bundle, ReplaySettings((float("-inf"),) * layers, "all"))
    saved = (times["dense"] - times["replay+drs"]) / (frames - 1)  # of a frame, with everything replayed
    wanted = _dense_frame(bundle) - 0.5 * saved
    shares = shares_for_time(bundle, wanted, frames, 2)
    assert shares[0] == 0 and shares[1:] == pytest.approx([0.5] * (frames - 1), abs=0.1)
    assert all(
        more >= less for more, less in zip(shares_for_time(bundle, wanted * 0.97, frames, 2), shares, strict=True)
    )
    held, run = modes_of(bundle, ReplaySettings((0.0,) * layers, "all", hold=shares))
    gained = saved * (frames - 1) * run.eligible_replay_ratio
    assert held["replay+drs"] == pytest.approx(held["dense"] - gained, rel=0.02)


def _dense_frame(bundle: Bundle) -> float:
    """The longest time that is refused, by bisection: that of the slowest dense frame."""
    low, high = 1e-9, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        try:
            shares_for_time(bundle, middle, LAYOUT.frames, 2)
            low = middle
        except UsageError:
            high = middle
    return low


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf"), 1e6])
def test_times_that_are_none_or_are_met_anyway_are_refused(bundle: Bundle, seconds: float):
    with pytest.raises(UsageError, match="--hold-frame-time"):
        shares_for_time(bundle, seconds, LAYOUT.frames, 2)


def test_a_time_that_no_frame_meets_replays_everything(bundle: Bundle):
    assert shares_for_time(bundle, 1e-9, 3, 2) == (0.0, 1.0, 1.0)


def test_what_is_held_has_the_same_bits_in_the_overlays_code(bundle: Bundle):
    for replay in (ReplaySettings(hold=0.5, policy="all", refresh=3), ReplaySettings(random=0.5)):
        runs = [
            generate(bundle, "slow", seed=2, sampling=SAMPLING, replay=replay, backend=name, record_logits=True)
            for name in ("csim", "onnxruntime")
        ]
        for name in ("codes", "replay", "logits", "offsets"):
            assert (getattr(runs[0], name) == getattr(runs[1], name)).all()
        assert 0 < runs[0].eligible_replay_ratio < 1
