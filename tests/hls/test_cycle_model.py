"""The cycle model on the 1.1 B shape, int4: what the engine is designed to reach, at 300 MHz and 85 % of 19.2 GB/s."""

from __future__ import annotations

import numpy as np
import pytest
from shapes import INT4, SHAPE, SUSTAINED, count, decisions

from fastcar.export.overlay.weights import LinearPlan
from fastcar.hls.counting import EngineCounter
from fastcar.overlays import load_engine

POSITION = 1000


@pytest.fixture(scope="module")
def two_rows() -> EngineCounter:
    return EngineCounter(load_engine("zcu106").config)


@pytest.fixture(scope="module")
def ten_rows() -> EngineCounter:
    return EngineCounter(load_engine("zcu102-batch").config)


def bytes_of_weights() -> int:
    """Of one step, from the shape alone: int4 with a multiplier a group of 32, and a scale an output."""
    hidden, mlp, kv = SHAPE.hidden, SHAPE.mlp, SHAPE.kv_heads * SHAPE.head_dim
    shapes = [(hidden, hidden + 2 * kv), (hidden, hidden), (hidden, 2 * mlp), (mlp, hidden)] * SHAPE.layers
    shapes.append((hidden, 1024))
    return sum(inputs * outputs * 17 // 32 + 4 * outputs for inputs, outputs in shapes)


def test_dense_takes_what_the_memory_sustains(two_rows: EngineCounter) -> None:
    dense = count(two_rows, 2, POSITION, decisions(2, 0.0, together=True))["dense"]
    assert dense.memory_use >= 0.97
    weights = 16 * sum(dense.counters[f"weight_beats{port}"] for port in range(4)) / dense.steps
    assert weights == pytest.approx(bytes_of_weights(), rel=0.001)
    cached = 2 * SHAPE.layers * 2 * SHAPE.kv_heads * SHAPE.head_dim * POSITION
    assert 16 * sum(dense.counters[f"cache_beats{port}"] for port in range(4)) / dense.steps == pytest.approx(
        cached, rel=0.05
    )


def test_replay_with_drs_takes_little_more_than_its_bytes(two_rows: EngineCounter) -> None:
    modes = count(two_rows, 2, POSITION, decisions(2, 0.87, together=True))
    drs, fixed, dense = modes["replay+drs"], modes["replay"], modes["dense"]
    assert drs.cycles_per_step <= 1.05 * drs.beats / drs.steps / SUSTAINED
    assert fixed.cycles_per_step > 2.0 * drs.cycles_per_step
    assert fixed.bytes_per_step == pytest.approx(dense.bytes_per_step, rel=0.01)


def test_dealing_keeps_the_groups_busy(ten_rows: EngineCounter) -> None:
    modes = count(ten_rows, 10, POSITION, decisions(10, 0.5, together=False))
    with_drs, without = modes["replay+drs"], modes["replay"]
    assert with_drs.group_utilisation >= 1.5 * without.group_utilisation
    assert with_drs.cycles_per_step < without.cycles_per_step
    assert with_drs.group_utilisation > 0.95


def test_time_grows_with_what_is_asked(two_rows: EngineCounter) -> None:
    """More replay is never slower, a later position never faster."""
    times = [
        count(two_rows, 2, POSITION, decisions(2, ratio, together=True))["replay+drs"].cycles_per_step
        for ratio in (0.0, 0.2, 0.5, 0.8, 1.0)
    ]
    assert times == sorted(times, reverse=True)
    later = [
        count(two_rows, 2, position, decisions(2, 0.5, together=True))["replay+drs"].cycles_per_step
        for position in (64, 500, 1000, 2000)
    ]
    assert later == sorted(later)


def test_a_memory_twice_as_fast_is_at_most_twice_as_good(two_rows: EngineCounter) -> None:
    """And never better than what the four ports carry."""
    dense = count(two_rows, 2, POSITION, np.zeros((16, SHAPE.layers), np.uint32))["dense"]
    port = sum(dense.counters[f"{kind}_beats0"] for kind in ("weight", "cache")) / dense.steps
    assert dense.cycles_per_step > port


def test_plan_of_the_shape_is_what_the_engine_fetches() -> None:
    plan = LinearPlan(SHAPE.hidden, 2 * SHAPE.mlp, INT4["gate_up"])
    assert plan.tiles == 352 and plan.port_beats == 352 * (2 + 32 + 64 * 8)


def test_long_starts_do_not_wrap_the_counters(two_rows: EngineCounter) -> None:
    """600 steps read more than 2^32 beats a port."""
    dense = count(two_rows, 2, 100, np.zeros((600, SHAPE.layers), np.uint32))["dense"]
    beats = dense.counters["weight_beats0"]
    assert beats > 1 << 32
    assert 64 * beats / 600 == pytest.approx(bytes_of_weights(), rel=0.001)
    assert 0.9 < dense.memory_use <= 1
