"""The overlay's C++ computes the bits of the NumPy reference: recipes, policies, windows, batches, modes."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import random_models
from broken_engine import build_mutant, build_with_blackbox, run_in_process
from random_models import (
    GUIDED,
    UNGUIDED,
    Run,
    assert_same_bits,
    generate_clip,
    layout,
    median_thresholds,
    random_model,
    reference_backend,
    with_head_weights,
)
from small_engine import small_engine

from fastcar.export.overlay.compile import pack_model
from fastcar.hls.build import SANITIZERS, build_library
from fastcar.hls.library import EngineLibrary, SimulationError
from fastcar.hls.modes import count_modes
from fastcar.toolkit.backends.csim import CSimBackend
from fastcar.toolkit.errors import BundleError
from fastcar.toolkit.numerics.weights import IntegerModel
from fastcar.toolkit.program.descriptors import Opcode
from fastcar.toolkit.settings import AttentionSettings, ReplaySettings

ENGINE = small_engine()
EIGHT = random_models.config(hidden=48, heads=6, kv_heads=2, head_dim=16, mlp=56)  # fits no tile
FOUR = random_models.config(hidden=64, heads=4, kv_heads=4, head_dim=32, mlp=96)
GROUPS = dict.fromkeys(("qkv", "output", "gate_up", "down"), 32)
LONG = {"frames": 6, "grid": (4, 5)}  # 123 positions: several blocks of slots on every port


@cache
def model_of(bits: int, tas_query: str = "post_rope", tas_heads: str = "mean") -> IntegerModel:
    score = {"tas_query": tas_query, "tas_heads": tas_heads}
    if bits == 8:
        return random_model(8, shape=EIGHT, frames=layout(**LONG), **score)
    return random_model(4, shape=FOUR, frames=layout(**LONG), groups=GROUPS, **score)


@cache
def library(**changes: int) -> EngineLibrary:
    return EngineLibrary(small_engine(**changes))


def simulation(model: IntegerModel, reassign: bool = True, **changes: int) -> CSimBackend:
    engine = library(**changes)
    return CSimBackend(engine, pack_model(model, engine.config), model.config, model.layout, reassign)


def replaying(model: IntegerModel, run: Run) -> Run:
    """With thresholds that half of the eligible scores of the dense clip exceed."""
    dense = generate_clip(reference_backend(model), Run(run.clips, run.sampling, attention=run.attention))
    return Run(
        run.clips, run.sampling, run.replay, median_thresholds(dense.scores, model.layout), attention=run.attention
    )


@pytest.mark.parametrize("sampling", [GUIDED, UNGUIDED], ids=["guided", "unguided"])
@pytest.mark.parametrize("tas_query", ["post_rope", "pre_rope"])
@pytest.mark.parametrize("bits", [8, 4])
def test_dense(bits, tas_query, sampling):
    model, run = model_of(bits, tas_query), Run(sampling=sampling)
    assert_same_bits(generate_clip(simulation(model), run), generate_clip(reference_backend(model), run))


@pytest.mark.parametrize("biases", [("attention_bias",), ("mlp_bias",), ("attention_bias", "mlp_bias")])
@pytest.mark.parametrize("bits", [8, 4])
def test_biases(bits, biases):
    """Of some layers or all, with outputs that fill no tile; rows that replay too."""
    shape, groups = (EIGHT, {}) if bits == 8 else (FOUR, GROUPS)
    shape = shape.model_copy(update=dict.fromkeys(biases, True))
    model = random_model(bits, shape=shape, frames=layout(**LONG), groups=groups)
    run = replaying(model, Run(clips=2))
    expected = generate_clip(reference_backend(model), run)
    assert 0.05 < expected.replay.mean() < 0.8
    assert_same_bits(generate_clip(simulation(model), run), expected)


def test_layers_of_either_width():
    eight = random_model(8, shape=FOUR, frames=layout(**LONG))
    layers = (eight.layers[0], model_of(4).layers[1], eight.layers[2])
    model = replace(eight, layers=layers)
    run = replaying(model, Run())
    assert_same_bits(generate_clip(simulation(model), run), generate_clip(reference_backend(model), run))


@pytest.mark.parametrize("reassign", [True, False], ids=["drs", "fixed"])
@pytest.mark.parametrize("policy", ["independent", "mean", "all"])
@pytest.mark.parametrize("bits", [8, 4])
def test_replay(bits, policy, reassign):
    """Scheduling changes what moves, never a bit; limits on the age too."""
    model = model_of(bits)
    run = replaying(model, Run(replay=ReplaySettings((), policy, {"independent": None, "mean": 1, "all": 2}[policy])))
    expected = generate_clip(reference_backend(model), run)
    assert 0.05 < expected.replay.mean() < 0.8
    assert_same_bits(generate_clip(simulation(model, reassign), run), expected)


@pytest.mark.parametrize("tas_heads", ["max", "min"])
@pytest.mark.parametrize("bits, tas_query", [(8, "post_rope"), (4, "pre_rope")])
def test_replay_by_one_head(bits, tas_query, tas_heads):
    """The scores are neither those of the mean nor, where there is a frame before, those of the other reduction."""
    model, others = model_of(bits, tas_query, tas_heads), {"mean", "max", "min"} - {tas_heads}
    run = replaying(model, Run(clips=2))
    expected = generate_clip(reference_backend(model), run)
    assert 0.05 < expected.replay.mean() < 0.8
    for other in others:
        assert (generate_clip(reference_backend(model_of(bits, tas_query, other)), run).scores != expected.scores).any()
    assert_same_bits(generate_clip(simulation(model), run), expected)


@pytest.mark.parametrize("bits", [8, 4])
def test_weighted_heads(bits):
    """Multipliers below zero and zero reach the engine as they are."""
    model = with_head_weights(model_of(bits))
    assert any((layer.tas_multiplier < 0).any() for layer in model.layers)
    run = replaying(model, Run(clips=2))
    expected = generate_clip(reference_backend(model), run)
    assert 0.05 < expected.replay.mean() < 0.8
    assert_same_bits(generate_clip(simulation(model), run), expected)


@pytest.mark.parametrize("attention", [(0, 1), (0, 16), (3, 20), (17, 40), (40, 7), (5, 1000)], ids=str)
def test_sinks_and_window(attention):
    model = model_of(8)
    run = replaying(model, Run(attention=AttentionSettings(*attention)))
    expected = generate_clip(reference_backend(model), run)
    assert_same_bits(generate_clip(simulation(model), run), expected)


COLUMNS = [
    ({"grid": (4, 5), "frames": 6}, (0, 1, 5)),  # a frame is no whole number of blocks, each column has its own
    ({"grid": (4, 5), "frames": 6}, (25, 37, 64)),  # columns in the blocks that sinks and window cut, and among both
    ({"grid": (1, 7), "frames": 17}, (2, 9, 16)),  # two or three columns in a block
    ({"grid": (1, 1), "frames": 90}, (0, 5, 40)),  # 16 of them
    ({"grid": (4, 4), "frames": 8}, (0, 3, 6)),  # one a block, ports in turn
    ({"grid": (8, 8), "frames": 3}, (4, 40, 2)),  # all of them on one port
    ({"grid": (2, 9), "frames": 6, "before_frame": (0,), "after_row": (1,)}, (1, 30, 3)),  # separators take places
]


@pytest.mark.parametrize("frames, attention", COLUMNS, ids=str)
def test_columns(frames, attention):
    """With half of the eligible evaluations replayed; the counters are compared at every start."""
    model = random_model(8, shape=EIGHT, frames=layout(**frames))
    run = replaying(model, Run(attention=AttentionSettings(*attention)))
    expected = generate_clip(reference_backend(model), run)
    assert 0.05 < expected.replay.mean() < 0.8
    assert_same_bits(generate_clip(simulation(model), run), expected)
    without = Run(run.clips, run.sampling, run.replay, run.thresholds, attention=AttentionSettings(*attention[:2]))
    assert (generate_clip(reference_backend(model), without).logits != expected.logits).any(), "columns count"


def test_columns_of_int4_rows_with_scheduling_or_without():
    model = model_of(4)
    run = replaying(model, Run(clips=3, attention=AttentionSettings(2, 9, 3)))
    expected = generate_clip(reference_backend(model), run)
    for reassign in (True, False):
        assert_same_bits(generate_clip(simulation(model, reassign), run), expected)


@pytest.mark.parametrize("clips, sampling", [(5, GUIDED), (16, GUIDED), (32, UNGUIDED), (1, UNGUIDED)])
def test_batches_with_mixed_decisions(clips, sampling):
    """10 rows (five prompts with guidance) and the full width of the index register."""
    model = model_of(4)
    run = replaying(model, Run(clips=clips, sampling=sampling))
    expected = generate_clip(reference_backend(model), run, frames=3)
    mixed = expected.replay.any(axis=2) & ~expected.replay.all(axis=2)
    assert mixed.any() or run.rows == 1
    for reassign in (True, False):
        assert_same_bits(generate_clip(simulation(model, reassign), run, frames=3), expected)


@pytest.mark.parametrize(
    "changes", [{"groups": 1}, {"groups": 8, "vector": 16}, {"vector": 1, "weight_fifo_beats": 64}], ids=str
)
def test_any_parallelism_has_the_same_bits(changes):
    model = model_of(4)
    run = replaying(model, Run(clips=3))
    assert_same_bits(generate_clip(simulation(model, **changes), run), generate_clip(reference_backend(model), run))


def test_equal_runs_are_equal_whatever_ran_before():
    """Nothing is left over on chip from a clip of another model."""
    first, other = model_of(8), model_of(4)
    backend, run = simulation(first), replaying(first, Run())
    before = generate_clip(backend, run)
    generate_clip(simulation(other), Run(clips=4))
    assert_same_bits(generate_clip(backend, run), before)


def test_scores_of_a_given_text():
    model = model_of(8)
    tokens = np.random.default_rng(0).integers(0, model.config.vocab, (2, 70))
    results = []
    for backend in (simulation(model), reference_backend(model)):
        backend.start(1, model.layout.positions, GUIDED, ReplaySettings())
        results.append(backend.score(tokens))
    np.testing.assert_array_equal(*results)


def test_flushing_subnormals_changes_no_bit():
    """Hardware operators flush subnormal numbers to zero: no value of a clip may depend on one."""
    model = model_of(8)
    run = replaying(model, Run())
    config = ENGINE
    flushing = EngineLibrary(config, build_library(config, extra=("-DFASTCAR_FLUSH_SUBNORMALS",)))
    backend = CSimBackend(flushing, pack_model(model, config), model.config, model.layout)
    assert_same_bits(generate_clip(backend, run), generate_clip(reference_backend(model), run))


@pytest.mark.parametrize("reassign", [True, False], ids=["drs", "fixed"])
def test_counters_are_those_of_the_run(reassign):
    """Rows and passes from the record itself; beats of weights from what the program says is skipped."""
    model = model_of(4)
    backend = simulation(model, reassign)
    record = generate_clip(backend, replaying(model, Run()))
    counters = backend.counters()
    skipped = int(record.replay.all(axis=2).sum())
    assert skipped > 20
    assert counters["rows_replayed"] == record.replay.sum()
    assert counters["passes_skipped"] == (skipped if reassign else 0)
    plan = {(int(n[0]), int(n[2])): int(n[6]) for n in backend.packed.program[1:]}
    prompt = model.layout.prompt_length - 1  # whose steps predict nothing
    steps, head = prompt + len(record.codes), plan[Opcode.LINEAR_LOGITS, 0]
    mlp = sum(beats for (opcode, layer), beats in plan.items() if opcode in (8, 9, 10) and layer == 0)
    expected = steps * sum(plan.values()) - prompt * head - (skipped if reassign else 0) * mlp
    assert [counters[f"weight_beats{port}"] for port in range(4)] == [expected] * 4


def test_modes_count_the_same_decisions():
    model = model_of(4)
    backend = simulation(model)
    generate_clip(backend, replaying(model, Run()))
    starts = [(start.control, start.replays) for start in backend.starts]
    modes = count_modes(backend.library, backend.packed.program, starts, 3.4)
    drs = modes["replay+drs"].counters
    assert {name: value for name, value in backend.counters().items() if name in drs and name != "steps"} == {
        name: drs[name] for name in drs if name in backend.counters()
    }
    dense, replay = modes["dense"].counters, modes["replay"].counters
    assert dense["weight_beats0"] == replay["weight_beats0"] > drs["weight_beats0"]
    assert dense["busy"] > replay["busy"] == drs["busy"]
    assert dense["rows_replayed"] == 0 < replay["rows_replayed"] == drs["rows_replayed"]
    assert modes["dense"].cycles_per_step > modes["replay+drs"].cycles_per_step
    assert modes["replay"].cycles_per_step > modes["replay+drs"].cycles_per_step


def test_a_program_of_another_engine_is_refused():
    model = model_of(8)
    packed = pack_model(model, small_engine(groups=8))
    backend = CSimBackend(library(), packed, model.config, model.layout)
    with pytest.raises(BundleError, match="BAD_BUILD: the program was made for another engine"):
        generate_clip(backend, Run())


def test_a_stream_that_is_too_shallow_is_a_deadlock(tmp_path):
    """The cache port's FIFO must hold what is requested at once; with half of it the simulation says who waits."""
    depths = """describe(cache.to_engine, "cache reads", {0});
    describe(cache.from_engine, "cache writes", {0});""".format
    broken = build_mutant(tmp_path, ENGINE, "../../engine/engine.cpp", depths("CACHE_FIFO_BEATS"), depths("8"))
    model = model_of(8)
    backend = CSimBackend(EngineLibrary(ENGINE, broken), pack_model(model, ENGINE), model.config, model.layout)
    with pytest.raises(SimulationError, match="deadlock: .*cache waits for"):
        generate_clip(backend, Run())


@pytest.mark.parametrize(
    "header, before, after",
    [
        ("executor_layers.h", "(uint32_t)age_[row] + 1u", "(uint32_t)age_[row] + 2u"),
        ("layout.h", "position > (int)model.places ? position", "position > (int)model.places ? position - 1"),
        ("visible.h", "row_sinks_end || slot >= window_begin", "row_sinks_end || slot > window_begin"),
        ("visible.h", "if (slot >= first && ", "if (slot > first && "),
        ("visible.h", "lanes = window_columns;", "lanes = 0;"),
        ("executor_attention.h", "set_byte(block, lane, ", "set_byte(block, lane ^ 1, "),
        ("sequencer.h", "if (!dropped)", "if (true)"),
    ],
    ids=["age", "slot before", "window", "first column", "column in the window's block", "lane of V", "skip"],
)
def test_a_broken_engine_is_noticed(tmp_path, header, before, after):
    broken = EngineLibrary(ENGINE, build_mutant(tmp_path, ENGINE, header, before, after))
    model = model_of(8)
    run = replaying(model, Run(replay=ReplaySettings((), "all", 2), attention=AttentionSettings(3, 18, 5)))
    expected = generate_clip(reference_backend(model), run)
    backend = CSimBackend(broken, pack_model(model, ENGINE), model.config, model.layout)
    with pytest.raises((AssertionError, SimulationError)):
        assert_same_bits(generate_clip(backend, run), expected)


def test_the_blackbox_takes_the_place_of_the_group(tmp_path):
    model = model_of(4)
    run = replaying(model, Run())
    library = EngineLibrary(ENGINE, build_with_blackbox(tmp_path, ENGINE))
    backend = CSimBackend(library, pack_model(model, ENGINE), model.config, model.layout)
    assert_same_bits(generate_clip(backend, run, frames=2), generate_clip(reference_backend(model), run, frames=2))


def test_sanitizers_find_nothing(tmp_path):
    """The whole engine under AddressSanitizer and UndefinedBehaviorSanitizer, in a process of its own."""
    run_in_process(tmp_path, ENGINE, SANITIZERS)
