"""Whole clips of models with a depth transformer: the C simulation computes the bits of reference and onnxruntime."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import random_models
from broken_engine import build_mutant
from random_models import (
    CODES,
    GUIDED,
    UNGUIDED,
    Run,
    assert_same_bits,
    depth_config,
    generate_clip,
    layout,
    median_thresholds,
    onnx_backend,
    random_depth_model,
    reference_backend,
    save_graph,
)
from small_engine import deep_engine, small_engine

from fastcar.export.overlay.compile import pack_model
from fastcar.hls.library import EngineLibrary, SimulationError
from fastcar.toolkit.backends.csim import CSimBackend
from fastcar.toolkit.backends.protocol import next_read
from fastcar.toolkit.errors import UsageError
from fastcar.toolkit.numerics.weights import IntegerModel
from fastcar.toolkit.program.descriptors import NODE, Opcode
from fastcar.toolkit.settings import AttentionSettings, ReplaySettings, SamplingSettings

EIGHT = random_models.config(hidden=48, heads=6, kv_heads=2, head_dim=16, mlp=56)
FOUR = random_models.config(hidden=64, heads=4, kv_heads=4, head_dim=32, mlp=96)
FRAMES = {"frames": 4, "grid": (3, 6)}
DEPTHS = {  # none fits a tile of the engine but in what must be a multiple of 16
    "1 code": depth_config(hidden=48, heads=3, mlp=80, codes_per_position=1, code_dim=16, layers=3, projector_layers=1),
    "2 codes": depth_config(hidden=96, heads=2, mlp=32, codes_per_position=2, code_dim=48, projector_layers=3),
    "3 codes, shared": depth_config(
        hidden=80, heads=5, mlp=112, codes_per_position=3, code_dim=64, shared_codebook=True, norm_eps=1e-6
    ),
    "4 codes": depth_config(hidden=64, heads=4, mlp=160, codes_per_position=4, code_dim=32, layers=1),
    "4 codes, shared": depth_config(
        hidden=32, heads=1, mlp=64, codes_per_position=4, code_dim=16, shared_codebook=True, projector_layers=1
    ),
}
GREEDY = SamplingSettings(temperature=0.0, guidance=1.5)


@cache
def model_of(depth: str, bits: int = 8) -> IntegerModel:
    """4-bit weights in groups of 32, of the backbone and of the depth transformer's blocks."""
    shape = EIGHT if bits == 8 else FOUR
    return random_depth_model(bits, depth=DEPTHS[depth], shape=shape, frames=layout(**FRAMES), group=32)


@cache
def library(**changes: int) -> EngineLibrary:
    return EngineLibrary(deep_engine(**changes))


def simulation(model: IntegerModel, reassign: bool = True, **changes: int) -> CSimBackend:
    engine = library(**changes)
    packed = pack_model(model, engine.config)
    return CSimBackend(engine, packed, model.config, model.layout, reassign, model.depth.config)


@cache
def graph_of(folder: Path, depth: str, bits: int) -> Path:
    return save_graph(model_of(depth, bits), folder / f"{depth}, {bits}")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("graphs")


def replaying(model: IntegerModel, run: Run) -> Run:
    """With thresholds that half of the eligible scores of the dense clip exceed."""
    dense = generate_clip(reference_backend(model), replace(run, replay=ReplaySettings()))
    return replace(run, thresholds=median_thresholds(dense.scores, model.layout))


@pytest.mark.parametrize(
    ("depth", "bits", "run", "replay"),
    [
        ("1 code", 8, Run(clips=3, sampling=GREEDY), ReplaySettings()),
        ("2 codes", 8, Run(clips=2, sampling=UNGUIDED), ReplaySettings((), "mean", 1)),
        ("2 codes", 4, Run(sampling=UNGUIDED), ReplaySettings()),
        ("3 codes, shared", 8, Run(clips=5, sampling=UNGUIDED, seed=3), ReplaySettings((), "independent", 2)),
        ("4 codes", 4, Run(clips=2), ReplaySettings((), "all", 2)),
        ("4 codes", 8, Run(sampling=GUIDED), ReplaySettings()),
        ("4 codes, shared", 4, Run(clips=3, seed=1), ReplaySettings()),
    ],
)
def test_three_back_ends_give_the_same_bits(folder, depth, bits, run, replay):
    """Dense, and with half of the eligible evaluations replayed, by every policy; with and without scheduling."""
    model = model_of(depth, bits)
    onnx, reference = onnx_backend(model, graph_of(folder, depth, bits)), reference_backend(model)
    dense = generate_clip(reference, run)
    assert dense.logits.shape == (72, run.clips, DEPTHS[depth].codes_per_position, CODES)
    assert_same_bits(generate_clip(simulation(model), run), dense)
    run = replaying(model, replace(run, replay=replay))
    expected = generate_clip(reference, run)
    assert 0.05 < expected.replay.mean() < 0.8
    assert_same_bits(generate_clip(onnx, run), expected)
    for reassign in (True, False):
        assert_same_bits(generate_clip(simulation(model, reassign), run), expected)


@pytest.mark.parametrize("attention", [(0, 1), (3, 20), (17, 24, 1), (0, 5, 3), (30, 7)], ids=str)
def test_sinks_window_and_columns(folder, attention):
    """They bound what the backbone sees; the depth transformer sees every residual code before."""
    model = model_of("3 codes, shared")
    run = replaying(model, Run(clips=2, attention=AttentionSettings(*attention)))
    expected = generate_clip(reference_backend(model), run)
    full = generate_clip(reference_backend(model), replace(run, attention=AttentionSettings()))
    assert (full.logits != expected.logits).any(), "it made a difference"
    assert_same_bits(generate_clip(onnx_backend(model, graph_of(folder, "3 codes, shared", 8)), run), expected)
    assert_same_bits(generate_clip(simulation(model), run), expected)


def test_pre_rope_scores_and_the_largest_of_the_heads():
    model = random_depth_model(8, depth=DEPTHS["2 codes"], shape=EIGHT, frames=layout(**FRAMES), tas_query="pre_rope")
    model = replace(model, tas_heads="max")
    run = replaying(model, Run(clips=2))
    assert_same_bits(generate_clip(simulation(model), run), generate_clip(reference_backend(model), run))


@pytest.mark.parametrize(
    "changes", [{"groups": 1}, {"groups": 8, "vector": 16}, {"vector": 1, "weight_fifo_beats": 64}], ids=str
)
def test_any_parallelism_has_the_same_bits(changes):
    model = model_of("4 codes", 4)
    run = replaying(model, Run(clips=3))
    expected = generate_clip(reference_backend(model), run, frames=2)
    assert_same_bits(generate_clip(simulation(model, **changes), run, frames=2), expected)


def test_all_rows_of_an_engine():
    model = model_of("4 codes")
    run = replaying(model, Run(clips=16))
    expected = generate_clip(reference_backend(model), run, frames=2)
    assert_same_bits(generate_clip(simulation(model), run, frames=2), expected)


def test_models_with_and_without_depth_take_turns():
    """An engine with room for depth transformers runs models of one code as well; nothing is left over on chip."""
    deep, plain = model_of("4 codes"), random_models.random_model(8, shape=EIGHT, frames=layout(**FRAMES))
    engine = library()
    backends = simulation(deep), CSimBackend(engine, pack_model(plain, engine.config), plain.config, plain.layout)
    for _ in range(2):
        for model, backend in zip((deep, plain), backends, strict=True):
            run = replaying(model, Run())
            assert_same_bits(generate_clip(backend, run), generate_clip(reference_backend(model), run))


@pytest.mark.parametrize("sampling", [SamplingSettings(), GUIDED], ids=["unguided", "guided"])
@pytest.mark.parametrize("depth", ["1 code", "4 codes, shared"])
def test_score_of_the_codes_that_follow(depth, sampling):
    """More positions than a start records; a dense clip's own codes give the logits that it was sampled from."""
    model = model_of(depth)
    run = Run(clips=2, sampling=sampling)
    clip = generate_clip(reference_backend(model), run)
    rows = np.tile(clip.codes.swapaxes(0, 1), (run.rows // 2, 1, 1))
    prompt = np.random.default_rng(run.seed).integers(0, model.layout.code_offset, (run.rows, random_models.PROMPT))
    other = np.random.default_rng(9).integers(0, CODES, clip.codes.swapaxes(0, 1).shape)
    for following in (clip.codes.swapaxes(0, 1), other):
        results = []
        for backend in (simulation(model), reference_backend(model)):
            backend.start(2, model.layout.positions, sampling, ReplaySettings())
            backend.prefill(prompt[:, :-1])
            first = backend.score(prompt[:, -1:], following[:, :1])
            results.append(np.concatenate([first, backend.score(rows[:, :-1], following[:, 1:])]))
        np.testing.assert_array_equal(*results)
        assert np.array_equal(results[0], clip.logits) == (following is not other or depth == "1 code")


def test_decoding_in_pieces():
    """The first step of a start reads codes that the host gives; more steps at once than a start records."""
    model = model_of("3 codes, shared")
    run = replaying(model, Run(clips=2))
    whole, reference, rng = generate_clip(reference_backend(model), run), reference_backend(model), None
    for pieces in ([1, 2, 40, 5, 24], [72], [19, 53]):
        records = []
        for backend in (simulation(model), reference):
            rng = np.random.default_rng(run.seed)
            tokens = rng.integers(0, model.layout.code_offset, (run.rows, random_models.PROMPT))
            uniforms = rng.integers(0, 1 << 24, (72, 2, 3))
            backend.start(2, model.layout.positions, run.sampling, run.replay)
            backend.prefill(tokens[:, :-1])
            read, parts = tokens[:, -1], []
            for end, steps in zip(np.cumsum(pieces), pieces, strict=True):
                parts.append(backend.decode(read, uniforms[end - steps : end], run.limits(model.config.layers)))
                last = random_models.PROMPT - 2 + int(end)
                read = next_read(last, parts[-1].codes[-1], run.rows, model.layout, backend.depth)
            records.append(random_models.joined(parts))
        for record in records:
            assert_same_bits(record, whole)


def test_what_positions_leave_in_the_caches():
    model = model_of("2 codes")
    run, both = replaying(model, Run()), (simulation(model), reference_backend(model))
    for backend in both:
        generate_clip(backend, run)
    for position in (0, 2, 3, 20, 21, 39, 70, model.layout.positions - 2):
        found, expected = (backend.cached(position) for backend in both)
        for name in expected:
            np.testing.assert_array_equal(found[name], expected[name], f"{name} of {position}")


@pytest.mark.parametrize("reassign", [True, False], ids=["drs", "fixed"])
@pytest.mark.parametrize("depth", ["1 code", "4 codes"])
def test_counters_are_those_of_the_run(depth, reassign):
    """Weights cross the ports as often as there are residual codes; those of the projector where codes are read."""
    model = model_of(depth, 4 if depth == "4 codes" else 8)
    backend = simulation(model, reassign)
    record = generate_clip(backend, replaying(model, Run()))
    counters, codes = backend.counters(), model.depth.config.codes_per_position
    skipped = int(record.replay.all(axis=2).sum()) if reassign else 0
    assert counters["rows_replayed"] == record.replay.sum() and counters["passes_skipped"] == skipped
    prompt, chosen = model.layout.prompt_length - 1, len(record.codes)  # the prompt's last step chooses, too
    assert counters["steps_done"] == prompt + chosen
    times = {Opcode.PROJECT: chosen - 1, Opcode.DEPTH_HIDDEN: chosen, Opcode.DEPTH_CODES: (codes - 1) * chosen}
    expected = mlp = 0
    for descriptor in backend.packed.program[2:]:
        node = NODE.unpack(descriptor)
        opcode = Opcode(node["opcode"])
        often = codes * chosen if opcode > Opcode.DEPTH_CODES else prompt + chosen
        expected += node["beats"] * times.get(opcode, often)
        if opcode in (Opcode.NORM_MLP, Opcode.LINEAR_GATE_UP, Opcode.LINEAR_DOWN) and node["layer"] == 0:
            mlp += node["beats"]
    assert [counters[f"weight_beats{port}"] for port in range(4)] == [expected - skipped * mlp] * 4


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layers": 4}, "layers 4 of the depth transformer; expected at most 3"),
        ({"codes_per_position": 5}, "codes_per_position 5 of the depth transformer; expected at most 4"),
        ({"code_dim": 80}, "code_dim 80 of the depth transformer; expected at most 64"),
        ({"projector_layers": 5}, "projector_layers 5 of the depth transformer; expected at most 4"),
        ({"hidden": 144, "heads": 9}, "heads 9 of the depth transformer; expected at most 8"),
        ({"code_dim": 24}, "code_dim 24; expected a multiple of 16"),
        ({"hidden": 96, "heads": 4}, "head_dim of the depth transformer 24; expected a multiple of 16"),
        ({"mlp": 72}, "mlp of the depth transformer 72; expected a multiple of 16"),
    ],
)
def test_what_an_engine_does_not_take(changes, message):
    sizes = {"hidden": 64, "heads": 4, "mlp": 64, "code_dim": 32}
    model = random_depth_model(8, depth=depth_config(**(sizes | changes)), shape=EIGHT)
    with pytest.raises(UsageError, match=message):
        pack_model(model, deep_engine())


def test_an_engine_without_room_for_any():
    with pytest.raises(UsageError, match="engine small: a model with a depth transformer"):
        pack_model(model_of("1 code"), small_engine())


@pytest.mark.parametrize(
    ("header", "before", "after"),
    [
        ("executor_depth.h", "visible_.begin(operation.index, 0, 0, 0)", "visible_.begin(0, 0, 0, 0)"),
        ("executor_depth.h", "depth.books == 1 ? 0 : index", "0"),
        ("executor_depth.h", "operation.index * beats, beats", "0 * beats, beats"),
        ("executor_sampling.h", "& ~GIVEN", "& 0u"),
        ("sequencer.h", "visible.begin(code, 0, 0, 0)", "visible.begin(0, 0, 0, 0)"),
    ],
    ids=["codes before", "codebook", "row of the code", "given code", "fetched codes"],
)
def test_a_broken_engine_is_noticed(tmp_path, header, before, after):
    engine = deep_engine()
    broken = EngineLibrary(engine, build_mutant(tmp_path, engine, header, before, after))
    model, run = model_of("4 codes"), Run()
    backend = CSimBackend(broken, pack_model(model, engine), model.config, model.layout, depth=model.depth.config)
    expected = generate_clip(reference_backend(model), run, frames=1)
    text = np.zeros((2, 2), np.int64)
    following = np.full((1, 2, 4), 5)
    with pytest.raises((AssertionError, SimulationError)):
        assert_same_bits(generate_clip(backend, run, frames=1), expected)
        results = []
        for each in (backend, reference_backend(model)):
            each.start(1, model.layout.positions, GUIDED, ReplaySettings())
            results.append(each.score(text, following))
        np.testing.assert_array_equal(*results)
