"""A traced step tells what every node left behind, the same as the reference's, and changes nothing else."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import random_models
from bad_programs import ENGINE as TINY
from bad_programs import make_start
from random_models import (
    GUIDED,
    UNGUIDED,
    Run,
    depth_config,
    generate_clip,
    layout,
    median_thresholds,
    random_depth_model,
    random_model,
    reference_backend,
)
from small_engine import deep_engine, small_engine

from fastcar.export.overlay.compile import node_names, pack_model
from fastcar.hls.library import EngineLibrary
from fastcar.toolkit.backends.csim import CSimBackend
from fastcar.toolkit.numerics.weights import IntegerModel
from fastcar.toolkit.program.descriptors import Opcode
from fastcar.toolkit.program.memory import StateLayout
from fastcar.toolkit.program.trace import KINDS, TraceLayout, code_of, kind_of, layer_of
from fastcar.toolkit.settings import AttentionSettings

ENGINE, DEEP = small_engine(), deep_engine()
OFF_TILE = random_models.config(hidden=48, heads=6, kv_heads=2, head_dim=16, mlp=56)
FOUR = random_models.config(hidden=64, heads=4, kv_heads=4, head_dim=32, mlp=96)
GROUPS = dict.fromkeys(("qkv", "output", "gate_up", "down"), 32)
FRAMES = layout(frames=4, grid=(4, 5))
DEPTHS = {
    "three codes": depth_config(hidden=64, heads=4, mlp=96, code_dim=32),
    "one code": depth_config(hidden=48, heads=3, mlp=80, codes_per_position=1, code_dim=16, projector_layers=1),
}
POSITIONS = (0, 1, 2, 16, 30, 63, 64, 82)


@cache
def model_of(bits: int, tas_query: str) -> IntegerModel:
    if bits == 8:
        return random_model(8, shape=OFF_TILE, frames=FRAMES, tas_query=tas_query)
    return random_model(4, shape=FOUR, frames=FRAMES, groups=GROUPS, tas_query=tas_query)


@cache
def deep_model_of(bits: int, depth: str) -> IntegerModel:
    shape = OFF_TILE if bits == 8 else FOUR
    return random_depth_model(bits, depth=DEPTHS[depth], shape=shape, frames=FRAMES, group=32)


def simulation(model: IntegerModel, reassign: bool = True) -> CSimBackend:
    depth = model.depth and model.depth.config
    engine = ENGINE if depth is None else DEEP
    backend = CSimBackend(EngineLibrary(engine), pack_model(model, engine), model.config, model.layout, reassign, depth)
    backend.traced = True
    return backend


def limits_of(model: IntegerModel, run: Run) -> np.ndarray:
    dense = generate_clip(reference_backend(model), run)
    return np.array(median_thresholds(dense.scores, model.layout), np.int64)


@pytest.mark.parametrize(
    "bits, tas_query, run, reassign",
    [
        (8, "post_rope", Run(), True),
        (8, "pre_rope", Run(clips=3, sampling=UNGUIDED, attention=AttentionSettings(3, 20)), True),
        (4, "pre_rope", Run(), False),
        (4, "post_rope", Run(clips=2), True),
    ],
    ids=["int8", "int8, three rows, a window", "int4, fixed mapping", "int4, four rows"],
)
def test_every_node_is_the_reference(bits: int, tas_query: str, run: Run, reassign: bool) -> None:
    model = model_of(bits, tas_query)
    limits, rng = limits_of(model, run), np.random.default_rng(0)
    both = simulation(model, reassign), reference_backend(model)
    for backend in both:
        backend.start(run.clips, FRAMES.positions, run.sampling, run.replay, run.attention)
    ways = set()
    for position in range(max(POSITIONS) + 1):
        given = rng.integers(0, model.config.vocab, run.rows), rng.integers(0, 1 << 24, (1, run.clips)), limits
        if position not in POSITIONS:
            for backend in both:
                backend.decode(*given)
            continue
        found, expected = (backend.trace(*given) for backend in both)
        shapes = TraceLayout(model.config, FRAMES.codes, run.rows, run.clips).arrays
        assert set(found) == set(expected) == set(shapes)
        for name, (shape, dtype) in shapes.items():
            assert (found[name].shape, found[name].dtype) == (expected[name].shape, expected[name].dtype), name
            assert (found[name].shape, found[name].dtype) == (shape, dtype), name
            assert found[name].tobytes() == expected[name].tobytes(), f"position {position}, {name}"
            if name.endswith("ReplayDecision"):
                ways.add("all" if found[name].all() else "some" if found[name].any() else "none")
    assert {"some", "none"} <= ways


@pytest.mark.parametrize(
    ("bits", "depth", "run", "reassign"),
    [
        (8, "three codes", Run(clips=2), True),
        (8, "one code", Run(clips=3, sampling=UNGUIDED, attention=AttentionSettings(2, 20)), True),
        (4, "three codes", Run(), False),
    ],
)
def test_every_node_with_a_depth_transformer_is_the_reference(bits: int, depth: str, run: Run, reassign: bool) -> None:
    """Of steps that read tokens, and of steps that read codes."""
    model = deep_model_of(bits, depth)
    limits, rng, codes = limits_of(model, run), np.random.default_rng(0), model.depth.config.codes_per_position
    both = simulation(model, reassign), reference_backend(model)
    for backend in both:
        backend.start(run.clips, FRAMES.positions, run.sampling, run.replay, run.attention)
    shapes = TraceLayout(model.config, FRAMES.codes, run.rows, run.clips, model.depth.config).arrays
    ways = set()
    for position in range(max(POSITIONS) + 1):
        text = rng.integers(0, model.config.vocab, run.rows)
        if position >= FRAMES.prompt_length:
            text = rng.integers(0, FRAMES.codes, (run.rows, codes))
        given = text, rng.integers(0, 1 << 24, (1, run.clips, codes)), limits
        if position not in POSITIONS:
            for backend in both:
                backend.decode(*given)
            continue
        found, expected = (backend.trace(*given) for backend in both)
        assert set(found) == set(expected) == set(shapes)
        for name, (shape, dtype) in shapes.items():
            assert (found[name].shape, found[name].dtype) == (shape, dtype), name
            assert (expected[name].shape, expected[name].dtype) == (shape, dtype), name
            assert found[name].tobytes() == expected[name].tobytes(), f"position {position}, {name}"
            if name.endswith("ReplayDecision"):
                ways.add("all" if found[name].all() else "some" if found[name].any() else "none")
    assert {"some", "none"} <= ways


def test_a_trace_changes_nothing() -> None:
    """Codes, scores, decisions, logits, and what the positions left in memory."""
    model = model_of(8, "post_rope")
    limits, steps = limits_of(model, Run()), 70
    rng = np.random.default_rng(1)
    token, uniforms = rng.integers(0, model.config.vocab, 2), rng.integers(0, 1 << 24, (steps, 1))
    plain = simulation(model)
    plain.traced = False
    plain.start(1, FRAMES.positions, GUIDED, Run().replay)
    expected = plain.decode(token, uniforms, limits)
    traced = simulation(model)
    traced.start(1, FRAMES.positions, GUIDED, Run().replay)
    tokens = token
    for step in range(steps):
        trace = traced.trace(tokens, uniforms[step : step + 1], limits)
        assert trace["sample"].tolist() == expected.codes[step].tolist()
        assert trace["logits"].tobytes() == expected.logits[step].tobytes()
        for layer in range(model.config.layers):
            score, replay = trace[f"layers.{layer}.TemporalAttentionScore"], trace[f"layers.{layer}.ReplayDecision"]
            assert np.array_equal(score, expected.scores[step, layer])
            assert np.array_equal(replay, expected.replay[step, layer])
        tokens = np.tile(trace["sample"] + FRAMES.code_offset, 2)
    assert expected.replay.any()
    end = plain.memory.layout.thresholds
    assert np.array_equal(plain.memory.state[:end], traced.memory.state[:end])
    counted = {name: count for name, count in traced.counters().items() if name != "cache_writes"}
    same = {name for name in counted if counted[name] == plain.counters()[name]}
    assert set(counted) - same == {"cache_reads"}, "thresholds are read at every start, and a trace is a start"
    written = steps * traced.memory.layout.trace_layout.beats
    assert traced.counters()["cache_writes"] == plain.counters()["cache_writes"] + written


def test_more_steps_than_a_start_records() -> None:
    """A clip decoded at once is the clip decoded frame by frame."""
    model = model_of(8, "post_rope")
    rng = np.random.default_rng(2)
    tokens, uniforms = rng.integers(0, model.config.vocab, 2), rng.integers(0, 1 << 24, (50, 1))
    records = []
    for backend in (simulation(model), reference_backend(model)):
        backend.start(1, FRAMES.positions, GUIDED, Run().replay)
        records.append(backend.decode(tokens, uniforms, Run().limits(3)))
    random_models.assert_same_bits(*records)


def test_without_room_or_logits() -> None:
    model = model_of(8, "post_rope")
    given = np.zeros(2, np.int64), np.zeros((1, 1), np.int64), Run().limits(3)
    for traced, logits in ((False, True), (True, False)):
        backend = simulation(model)
        backend.traced = traced
        backend.start(1, FRAMES.positions, GUIDED, Run().replay, logits=logits)
        with pytest.raises(ValueError, match="room and logits; expected traced = True"):
            backend.trace(*given)


@pytest.mark.parametrize("bits, rows", [(8, {"clips": 1}), (4, {"clips": 3, "guided": False}), (4, {"clips": 2})])
def test_a_trace_has_the_size_that_the_engine_checks(bits: int, rows: dict) -> None:
    """Accepted where it ends with the state, refused a beat earlier; its last beat is written, none behind it."""
    library = EngineLibrary(TINY)
    start = make_start(bits, frames=10, position=20, steps=1, traced=True, **rows)
    state = np.full_like(start.state, 0x5A)
    state[: start.memory.trace] = start.state[: start.memory.trace]
    assert library.run(start.program, start.weights, state, start.registers)["status"] == 0
    trace = state[start.memory.trace :]
    assert len(trace) == start.memory.trace_layout.beats and not (trace[-1] == 0x5A).all()
    start.control["state_beats"] -= 1
    assert library.run(start.program, start.weights, state, start.registers)["status"] == 7


@pytest.mark.parametrize("depth", [None, *DEPTHS])
def test_entries_follow_each_other_and_stand_for_the_graph(depth: str | None) -> None:
    trace = TraceLayout(OFF_TILE, FRAMES.codes, 3, 3, DEPTHS.get(depth))
    end = 0
    for entry in trace.entries:
        assert entry.first == end
        end += 3 * entry.row_beats
    deep = {opcode for opcode in KINDS if opcode >= Opcode.PROJECT}
    opcodes = set(KINDS) - ({Opcode.EMBED, Opcode.LINEAR_LOGITS} if depth else deep)
    opcodes -= {Opcode.DEPTH_CODES} if depth == "one code" else set()
    assert end == trace.beats and {entry.opcode for entry in trace.entries} == opcodes
    names = list(trace.arrays)
    assert [layer_of(name) for name in names if "ReplayDecision" in name] == [0, 1, 2]
    assert layer_of("final.RMSNorm.scale") is layer_of("embedding") is code_of("layers.2.qkv") is None
    kinds = ["RMSNorm", "qkv", "RotaryEmbedding", "TemporalAttentionScore", "ReplayDecision", "Attention", "output"]
    backbone = [name for name in names if code_of(name) is None]
    first = list(dict.fromkeys(name.split(".")[2] for name in backbone if layer_of(name) == 0))
    assert first == [*kinds, "ReplayMLP"]
    functions = {"qkv": "QuantLinear", "output": "QuantLinear"}
    of_layer = [functions.get(name, name) for name in first]
    assert of_layer == [name for name in node_names(1)[: len(first) + 1] if name != "QuantizeRows"]


def test_names_inside_a_depth_transformer() -> None:
    """Once for each residual code; a kind of node has one name whatever code and layer."""
    names = list(TraceLayout(OFF_TILE, FRAMES.codes, 2, 1, DEPTHS["three codes"]).arrays)
    codes = [code_of(name) for name in names if code_of(name) is not None]
    assert codes == sorted(codes) and set(codes) == {0, 1, 2}
    assert (layer_of("depth.2.blocks.1.GELU.scale"), code_of("depth.2.blocks.1.GELU.scale")) == (1, 2)
    assert layer_of("depth.2.classifier") is None and code_of("depth.2.classifier") == 2
    inside = ["LayerNorm.attention.values", "LayerNorm.attention.scale", "qkv", "heads.q", "heads.k", "heads.v"]
    inside += ["Attention.values", "Attention.scale", "output", "LayerNorm.mlp.values", "LayerNorm.mlp.scale"]
    inside += ["GELU.values", "GELU.scale", "fc2"]
    outside = ["LayerNorm.values", "LayerNorm.scale", "classifier", "logits", "sample"]
    kinds = [f"depth.{kind}" for kind in ("embedding", *inside, *inside, *outside)]
    assert [kind_of(name) for name in names if code_of(name) is not None] == 3 * kinds
    assert [kind_of(name) for name in ("layers.12.qkv", "head", "sample")] == ["qkv", "head", "sample"]


def test_room_only_when_asked_for() -> None:
    plain, traced = (
        StateLayout.for_clip(OFF_TILE, FRAMES, 2, 1, 64, 20, logits=True, traced=traced) for traced in (False, True)
    )
    assert plain.total_beats == plain.trace == traced.trace
    assert traced.total_beats == traced.trace + traced.trace_layout.beats
