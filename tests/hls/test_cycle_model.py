"""The cycle model on the 1.1 B shape, int4: what the engine is designed to reach, at 300 MHz and 85 % of 19.2 GB/s."""

from __future__ import annotations

import numpy as np
import pytest
from bad_programs import DEEP_ENGINE, make_start
from shapes import DEEP, DEEP_FRAMES, DEEP_SHAPE, INT4, SHAPE, SUSTAINED, count, count_deep, decisions

from fastcar.export.overlay.weights import LinearPlan
from fastcar.hls.counting import EngineCounter, OperationCounts
from fastcar.hls.library import EngineLibrary
from fastcar.overlays import load_engine
from fastcar.toolkit.config import DepthConfig
from fastcar.toolkit.program.descriptors import Opcode

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


def bytes_of_codes(codes: int) -> int:
    """What a position's residual codes read, from the shape alone: weights, a scale and a bias an output, the norms'
    gains and biases and the heads' constants, the keys and values of the codes before, in whole blocks of 16."""
    hidden, mlp = DEEP.hidden, DEEP.mlp
    shapes = [(hidden, 3 * hidden), (hidden, hidden), (hidden, mlp), (mlp, hidden)]
    layer = (
        sum(inputs * outputs * 17 // 32 + 8 * outputs for inputs, outputs in shapes) + 2 * 8 * hidden + 20 * DEEP.heads
    )
    code = DEEP.layers * layer + 8 * hidden + hidden * DEEP_FRAMES.codes + 8 * DEEP_FRAMES.codes
    inputs = DEEP_SHAPE.hidden * hidden + 8 * hidden + (codes - 1) * (DEEP.code_dim * hidden + 8 * hidden)
    return codes * code + inputs + (codes - 1) * 2 * DEEP.layers * 2 * hidden * 16


def deep(counts: dict[Opcode, OperationCounts]) -> OperationCounts:
    own = [operation for code, operation in counts.items() if code >= Opcode.DEPTH_HIDDEN]
    return sum(own, OperationCounts())


def test_a_depth_step_takes_little_more_than_its_bytes(two_rows: EngineCounter) -> None:
    """The ports wait in the short operations only: attention over up to three slots, heads, norms and the sort of
    16,384 codes, which no weight hides; nothing of what they are fed for takes longer than its bytes."""
    counts = count_deep(two_rows.config, 2).operations
    whole = deep(counts)
    assert 16 * whole.read_beats == pytest.approx(bytes_of_codes(4), rel=0.001)
    needed = whole.beats / SUSTAINED
    assert needed < whole.cycles < 1.15 * needed
    fed = (Opcode.DEPTH_HIDDEN, Opcode.DEPTH_QKV, Opcode.DEPTH_OUTPUT, Opcode.DEPTH_FC1, Opcode.DEPTH_FC2)
    for code in (*fed, Opcode.DEPTH_LOGITS, Opcode.PROJECT):
        assert counts[code].cycles < 1.02 * counts[code].beats / SUSTAINED
    heads = 2 * DEEP.heads * DEEP.layers * DEEP.codes_per_position
    assert counts[Opcode.DEPTH_ATTENTION].cycles < 800 * heads
    sort = 3 * (2 * 2048 + 4 * DEEP_FRAMES.codes) + 5 * DEEP_FRAMES.codes  # clocks of its passes
    assert 4 * sort < counts[Opcode.DEPTH_SAMPLE].cycles < 1.02 * 4 * sort


def test_every_code_reads_the_weights_again(two_rows: EngineCounter) -> None:
    """The same weights for each, but what it reads first; no fewer cycles a code, no more than the first takes."""
    tried = [
        count_deep(two_rows.config, 2, DEEP.model_copy(update={"codes_per_position": codes})) for codes in (1, 2, 3)
    ]
    read = [16 * deep(counts.operations).read_beats for counts in tried]
    assert read == pytest.approx([bytes_of_codes(codes) for codes in (1, 2, 3)], rel=0.001)
    one, two, three = (deep(counts.operations).cycles for counts in tried)
    assert 0.9 * one < two - one < 1.1 * one and two - one <= three - two + 1


def test_a_step_that_reads_tokens_leaves_the_projector_out(two_rows: EngineCounter) -> None:
    codes, tokens = (count_deep(two_rows.config, 2, texts=texts).operations for texts in (0, 1))
    widths = (DEEP.code_dim + DEEP_SHAPE.hidden) * DEEP_SHAPE.hidden + 2 * 8 * DEEP_SHAPE.hidden
    assert 16 * codes[Opcode.PROJECT].read_beats == pytest.approx(widths, rel=0.001)
    assert tokens[Opcode.PROJECT].read_beats == 0 and tokens[Opcode.PROJECT].cycles < 20
    more = codes[Opcode.EMBED].cache_beats - tokens[Opcode.EMBED].cache_beats
    assert more == 2 * (4 * DEEP.code_dim - DEEP_SHAPE.hidden) // 8


@pytest.mark.parametrize("settings", [{}, {"texts": 1}, {"traced": True, "steps": 1}, {"guided": False, "clips": 3}])
def test_counters_of_a_depth_transformer_are_those_of_the_simulation(settings: dict[str, int]) -> None:
    depth = DepthConfig(hidden=48, layers=2, heads=1, mlp=48, codes_per_position=3, code_dim=16, projector_layers=2)
    engine = DEEP_ENGINE.model_copy(update={"max_head_dim": 48})
    library = EngineLibrary(engine)
    start = make_start(8, frames=10, position=39, depth=depth, engine=engine, **settings)
    state = start.state.copy()
    simulated = library.run(start.program, start.weights, state, start.registers)
    assert simulated["status"] == 0 and simulated["rows_replayed"] > 0
    record = sum(start.memory.output_parts.values())
    steps, layers = start.memory.steps, start.memory.config.layers
    records = state[start.memory.output :][: steps * record].reshape(steps, record, 16)
    first = start.memory.output_parts["codes"]
    masks = records[:, first:].reshape(steps, -1).view(np.uint32)[:, :layers]
    counted = library.count(start.program, start.registers, masks, SUSTAINED).report
    times = {f"{name}_{half}" for name in ("cycles", "stalls") for half in ("low", "high")}
    assert {name: counted[name] for name in simulated if name not in times} == {
        name: simulated[name] for name in simulated if name not in times
    }
