"""Whole clips of models with a depth transformer: the reference and onnxruntime compute the same bits."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from random_models import (
    CODES,
    GUIDED,
    UNGUIDED,
    Run,
    assert_same_bits,
    depth_config,
    generate_clip,
    median_thresholds,
    onnx_backend,
    random_depth_model,
    reference_backend,
    save_graph,
)

from fastcar.toolkit.numerics.depth import TEXT, predict_codes
from fastcar.toolkit.numerics.step import decode_step
from fastcar.toolkit.settings import ReplaySettings, SamplingSettings

DEPTHS = {
    "3 codes": depth_config(),
    "1 code": depth_config(codes_per_position=1),
    "4 codes, shared": depth_config(codes_per_position=4, shared_codebook=True, projector_layers=1, layers=1),
    "odd": depth_config(hidden=33, heads=3, mlp=20, codes_per_position=5, code_dim=7, projector_layers=3),
}
GREEDY = SamplingSettings(temperature=0.0, guidance=1.5)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """(depth, bits) -> a model and its graph."""
    made = {}

    def model_of(depth: str, bits: int = 8):
        if (depth, bits) not in made:
            model = random_depth_model(bits, depth=DEPTHS[depth])
            made[depth, bits] = model, save_graph(model, tmp_path_factory.mktemp("depth"))
        return made[depth, bits]

    return model_of


@pytest.mark.parametrize(
    ("depth", "bits", "run"),
    [
        ("3 codes", 8, Run(clips=2)),
        ("3 codes", 4, Run(clips=1, sampling=UNGUIDED)),
        ("1 code", 8, Run(clips=3, sampling=GREEDY)),
        ("4 codes, shared", 4, Run(clips=2, sampling=GUIDED, seed=5)),
        ("odd", 8, Run(clips=1, seed=2)),
    ],
)
def test_a_clip_has_the_same_bits(models, depth, bits, run):
    model, path = models(depth, bits)
    dense = generate_clip(reference_backend(model), run)
    assert dense.codes.shape == (24, run.clips, DEPTHS[depth].codes_per_position)
    assert dense.logits.shape == (*dense.codes.shape, CODES)
    assert_same_bits(generate_clip(onnx_backend(model, path), run), dense)
    limits = median_thresholds(dense.scores, model.layout)
    replaying = Run(run.clips, run.sampling, ReplaySettings(max_age=1), limits, run.seed)
    expected = generate_clip(reference_backend(model), replaying)
    assert expected.replay.any() and not expected.replay.all()
    assert_same_bits(generate_clip(onnx_backend(model, path), replaying), expected)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("optimize", [True, False])
def test_threads_and_optimization_do_not_change_a_bit(models, threads, optimize):
    model, path = models("3 codes", 4)
    expected = generate_clip(reference_backend(model), Run(), frames=1)
    assert_same_bits(generate_clip(onnx_backend(model, path, threads, optimize), Run(), frames=1), expected)


def test_rows_read_what_was_sampled(models):
    """A clip by hand: every position reads the codes that the depth transformer made of the hidden state before."""
    model, _ = models("3 codes")
    run, backend = Run(clips=2, sampling=UNGUIDED), reference_backend(model)
    record = generate_clip(backend, run, frames=1)
    seen = []
    whole = reference_backend(model)
    whole.start(2, model.layout.frame_start(1), run.sampling, run.replay)
    original = whole.run_step
    whole.run_step = lambda: seen.append({k: v.copy() for k, v in whole.inputs.items()}) or original()
    rng = np.random.default_rng(run.seed)
    prompt = rng.integers(0, model.layout.code_offset, (2, model.layout.prompt_length))
    whole.prefill(prompt)
    assert all((inputs["codes"] == TEXT).all() for inputs in seen)
    assert [inputs["tokens"].tolist() for inputs in seen] == prompt.T.tolist()
    whole.prefill(record.codes[:2].swapaxes(0, 1))
    np.testing.assert_array_equal(seen[-1]["codes"], record.codes[1])
    caches = {f"k_cache.{index}": cache for index, cache in enumerate(whole.state.k_cache)}
    caches |= {f"v_cache.{index}": cache for index, cache in enumerate(whole.state.v_cache)}
    mask = whole.state.mask.copy()
    mask[:, whole.state.position - 1] = np.int32(-(1 << 30))  # as it was before the step
    hidden = decode_step(model, whole.cos, whole.sin, seen[-1] | caches | {"mask": mask})["hidden"]
    uniform = rng.integers(0, 1 << 24, (6, 2, 3))[2]
    made = predict_codes(model, hidden, whole.sampling | {"uniform": uniform})
    np.testing.assert_array_equal(made["code"], record.codes[2])
    np.testing.assert_array_equal(made["logits"], record.logits[2])


@pytest.mark.parametrize("make", ["reference", "onnxruntime"])
def test_score_of_the_codes_that_follow(models, make):
    """Scoring a dense, unguided clip gives the logits it was sampled from, whatever would be sampled now."""
    model, path = models("4 codes, shared", 4)
    run = Run(clips=2, sampling=SamplingSettings())
    record = generate_clip(reference_backend(model), run, frames=2)
    prompt = np.random.default_rng(run.seed).integers(0, model.layout.code_offset, (2, model.layout.prompt_length))
    codes = record.codes.swapaxes(0, 1)
    backend = reference_backend(model) if make == "reference" else onnx_backend(model, path)
    backend.start(2, model.layout.frame_start(2), run.sampling, run.replay)
    backend.prefill(prompt[:, :-1])
    first = backend.score(prompt[:, -1:], codes[:, :1])
    rest = backend.score(codes[:, :-1], codes[:, 1:])
    np.testing.assert_array_equal(np.concatenate([first, rest]), record.logits)
    free = generate_clip(backend, run, frames=1)
    np.testing.assert_array_equal(free.codes, record.codes[:6])


def test_graphs_name_their_nodes(models):
    _, path = models("3 codes", 4)
    paths = [path.with_name(f"{graph}.onnx") for graph in ("backbone", "depth")]
    for each in paths:
        onnx.checker.check_model(str(each), full_check=True)
    backbone, depth = (onnx.load(each, load_external_data=False) for each in paths)
    assert {"codes", "tokens"} <= {value.name for value in backbone.graph.input}
    assert "uniform" not in {value.name for value in backbone.graph.input}
    assert {"hidden"} <= {value.name for value in backbone.graph.output}
    loop = next(node for node in depth.graph.node if node.op_type == "Loop")
    inner = [node.op_type for node in loop.attribute[0].g.node if node.domain == "ai.fastcar"]
    assert inner.count("Attention") == 2 and inner.count("LayerNorm") == 5 and inner.count("Sample") == 1
    assert {"CodeEmbedding", "GELU", "QuantizeHeads", "QuantLinearBias", "QuantLinearInt4G4Bias"} <= set(inner)
