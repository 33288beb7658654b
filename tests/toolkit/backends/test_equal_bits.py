"""Whole clips: onnxruntime and the NumPy reference agree in every bit, however they are run."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import random_models
from random_models import (
    GUIDED,
    UNGUIDED,
    Run,
    assert_same_bits,
    config,
    fingerprint,
    generate_clip,
    layout,
    median_thresholds,
    onnx_backend,
    random_model,
    reference_backend,
    save_graph,
    with_head_weights,
)

from fastcar.toolkit.numerics.tas import NEVER
from fastcar.toolkit.settings import ReplaySettings, SamplingSettings

LAYERS = config().layers
every_recipe = pytest.mark.parametrize("bits", [8, 4])
every_query = pytest.mark.parametrize("tas_query", ["post_rope", "pre_rope"])
every_sampling = pytest.mark.parametrize("sampling", [GUIDED, UNGUIDED], ids=["guided", "unguided"])


@pytest.fixture(scope="module")
def backends(lowered):
    """(bits, tas_query, tas_heads) -> the reference and onnxruntime; the same objects run one clip after the other."""

    @cache
    def pair(bits: int, tas_query: str, tas_heads: str = "mean"):
        model, path = lowered(bits, tas_query, tas_heads=tas_heads)
        return reference_backend(model), onnx_backend(model, path)

    return pair


def half(reference, run: Run) -> tuple[int, ...]:
    """Thresholds that half of the eligible scores of a dense clip exceed."""
    return median_thresholds(generate_clip(reference, run).scores, reference.layout)


@every_sampling
@every_query
@every_recipe
def test_dense(backends, bits, tas_query, sampling):
    reference, onnx = backends(bits, tas_query)
    run = Run(sampling=sampling)
    expected = generate_clip(reference, run)
    assert not expected.replay.any() and len(np.unique(expected.codes)) > 5
    assert_same_bits(generate_clip(onnx, run), expected)


@pytest.mark.parametrize("policy", ["independent", "mean", "all"])
@every_sampling
@every_query
@every_recipe
def test_replay(backends, bits, tas_query, sampling, policy):
    reference, onnx = backends(bits, tas_query)
    replay = ReplaySettings((), policy, {"independent": None, "mean": 1, "all": 2}[policy])
    run = Run(sampling=sampling, replay=replay, thresholds=half(reference, Run(sampling=sampling)))
    expected = generate_clip(reference, run)
    assert 0.05 < expected.replay.mean() < 0.7
    if policy != "independent":
        assert (expected.replay == expected.replay[..., :1]).all()
    assert_same_bits(generate_clip(onnx, run), expected)


@pytest.mark.parametrize("policy", ["independent", "mean", "all"])
@pytest.mark.parametrize("tas_heads", ["max", "min"])
@every_query
def test_replay_by_one_head(backends, tas_query, tas_heads, policy):
    """The scores, and so the decisions, are others than those of the mean."""
    reference, onnx = backends(8, tas_query, tas_heads)
    run = Run(replay=ReplaySettings((), policy), thresholds=half(reference, Run()))
    expected = generate_clip(reference, run)
    assert 0.05 < expected.replay.mean() < 0.7
    assert (expected.replay != generate_clip(backends(8, tas_query)[0], run).replay).any()
    assert_same_bits(generate_clip(onnx, run), expected)


@every_recipe
def test_weighted_heads(tmp_path, bits):
    """Weights of either sign and none, another one each layer."""
    plain = random_model(bits)
    model = with_head_weights(plain, seed=bits)
    reference = reference_backend(model)
    run = Run(thresholds=half(reference, Run()))
    expected = generate_clip(reference, run)
    assert 0.05 < expected.replay.mean() < 0.7
    assert (expected.scores != generate_clip(reference_backend(plain), run).scores).any()
    assert_same_bits(generate_clip(onnx_backend(model, save_graph(model, tmp_path)), run), expected)


@pytest.mark.parametrize("biases", [("attention_bias",), ("mlp_bias",), ("attention_bias", "mlp_bias")])
@every_recipe
def test_biases(lowered, bits, biases):
    """Of some layers or all; the clip is another one than without."""
    model, path = lowered(bits, **dict.fromkeys(biases, True))
    reference, plain = reference_backend(model), reference_backend(random_model(bits))
    run = Run(thresholds=half(reference, Run()))
    expected = generate_clip(reference, run)
    assert expected.replay.any() and (expected.logits != generate_clip(plain, run).logits).any()
    assert_same_bits(generate_clip(onnx_backend(model, path), run), expected)


@pytest.mark.parametrize("policy", ["independent", "mean", "all"])
@every_recipe
def test_ten_rows(backends, bits, policy):
    """Five clips, each with its unconditional row. That all ten pass half is rare, hence the lower threshold."""
    reference, onnx = backends(bits, "post_rope")
    run = Run(clips=5)
    thresholds = (-300_000,) * LAYERS if policy == "all" else half(reference, run)
    run = Run(clips=5, thresholds=thresholds, replay=ReplaySettings((), policy))
    expected = generate_clip(reference, run)
    assert expected.replay.shape[-1] == 10 and expected.replay.any() and len(np.unique(expected.codes[:, 0])) > 3
    assert_same_bits(generate_clip(onnx, run), expected)


@pytest.mark.parametrize(
    "sampling",
    [
        SamplingSettings(temperature=0.0, guidance=2.0),
        SamplingSettings(temperature=1.3, top_k=3, top_p=1.0, guidance=0.0),
        SamplingSettings(temperature=1e-3, top_p=2**-16, guidance=900.0),
    ],
)
def test_unusual_sampling(backends, sampling):
    reference, onnx = backends(8, "post_rope")
    run = Run(clips=2, sampling=sampling, thresholds=(-NEVER,) * LAYERS)
    assert_same_bits(generate_clip(onnx, run), generate_clip(reference, run))


@pytest.mark.parametrize(("heads", "layers"), [((4, 1, 6), 1), ((3, 3, 18), 2), ((8, 2, 32), 2)])
@every_recipe
def test_other_shapes(tmp_path, bits, layers, heads):
    """Groups of 4 and 1, a single layer, a prompt longer than a frame."""
    shape = config(layers=layers, heads=heads[0], kv_heads=heads[1], head_dim=heads[2])
    groups = {} if bits == 8 else {"qkv": 16, "output": 6 if heads[2] < 32 else 32, "gate_up": 4, "down": 4}
    model = random_model(bits, shape=shape, frames=layout(prompt_length=8, frames=3), groups=groups)
    run = Run(thresholds=half(reference_backend(model), Run()))
    expected = generate_clip(reference_backend(model), run)
    assert_same_bits(generate_clip(onnx_backend(model, save_graph(model, tmp_path)), run), expected)


@pytest.fixture(scope="module")
def larger(tmp_path_factory):
    """Sizes for which onnxruntime splits its work: bits -> model, graph, replaying run and what it must give."""

    @cache
    def make(bits: int):
        shape = config(hidden=256, layers=2, heads=8, kv_heads=4, head_dim=32, mlp=704, vocab=536)
        frames = layout(frames=2, grid=(8, 8), code_offset=24, codes=512)
        groups = {} if bits == 8 else dict.fromkeys(("qkv", "output", "gate_up", "down"), 32)
        model = random_model(bits, shape=shape, frames=frames, groups=groups)
        path = save_graph(model, tmp_path_factory.mktemp("larger"))
        dense = generate_clip(onnx_backend(model, path), Run())
        run = Run(thresholds=median_thresholds(dense.scores, frames))
        return model, path, run, generate_clip(reference_backend(model), run)

    return make


@pytest.mark.parametrize("threads", [1, 2])
@every_recipe
def test_threads_do_not_count(larger, bits, threads):
    model, path, run, expected = larger(bits)
    assert 0.1 < expected.replay.mean() < 0.4
    assert_same_bits(generate_clip(onnx_backend(model, path, threads), run), expected)


@every_recipe
def test_without_any_graph_optimization(larger, bits):
    model, path, run, expected = larger(bits)
    assert_same_bits(generate_clip(onnx_backend(model, path, optimize=False), run), expected)


def test_the_level_in_use_is_the_one_without_fusions(lowered):
    """Basic: above it an onnxruntime may merge scale multiplications and so round once where two were written."""
    options = onnx_backend(*lowered(8)).session.get_session_options()
    assert options.graph_optimization_level == onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC


@pytest.mark.skipif(not onnxruntime.__version__.startswith("1.32."), reason="seen with onnxruntime 1.32 only")
@pytest.mark.parametrize("level", ["ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL"])
@every_recipe
def test_higher_levels_find_nothing_to_fuse(larger, bits, level):
    """Not promised, and not used: what a change here means is that the level in use has to stay where it is."""
    model, path, run, expected = larger(bits)
    backend = onnx_backend(model, path)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    backend.session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    assert_same_bits(generate_clip(backend, run), expected)


@every_recipe
def test_another_process(backends, lowered, bits):
    model, path = lowered(bits)
    for name, value in (("config", model.config), ("layout", model.layout)):
        (path.parent / f"{name}.json").write_text(value.model_dump_json())
    reference, _ = backends(bits, "post_rope")
    thresholds = half(reference, Run())
    script = Path(random_models.__file__).with_name("print_fingerprint.py")
    command = [sys.executable, str(script), str(path.parent), *map(str, thresholds)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    assert printed == [fingerprint(generate_clip(reference, Run(thresholds=thresholds)))] * 2


@pytest.mark.parametrize("which", [0, 1], ids=["reference", "onnxruntime"])
def test_start_resets_everything(backends, which):
    """Neither a clip of more rows, replayed throughout, nor a shorter one leaves anything behind."""
    backend = backends(8, "post_rope")[which]
    run = Run(thresholds=(0,) * LAYERS)
    first = generate_clip(backend, run)
    generate_clip(backend, Run(clips=5, thresholds=(-NEVER,) * LAYERS, seed=1))
    generate_clip(backend, Run(seed=2, replay=ReplaySettings((), "all", 1)), frames=2)
    assert_same_bits(generate_clip(backend, run), first)


def test_seeds_and_thresholds_do_count(backends):
    """The comparisons above would notice: other uniforms, prompts or thresholds give other bits."""
    onnx = backends(8, "post_rope")[1]
    runs = [Run(), Run(seed=1), Run(thresholds=(-NEVER,) * LAYERS), Run(sampling=UNGUIDED), Run(clips=2)]
    assert len({fingerprint(generate_clip(onnx, run)) for run in runs}) == len(runs)
