"""Whole clips whose replay MLP inputs decide: both back ends compute the same bits, and drift is bounded."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from random_models import (
    GUIDED,
    PROMPT,
    UNGUIDED,
    Run,
    assert_same_bits,
    config,
    depth_config,
    generate_clip,
    layout,
    median_thresholds,
    onnx_backend,
    random_depth_model,
    random_model,
    reference_backend,
    save_graph,
)

import fastcar
from fastcar.export.pipeline import export_model
from fastcar.toolkit.backends.registry import open_backend
from fastcar.toolkit.backends.state import ZERO, DecodeState
from fastcar.toolkit.numerics.tas import NEVER
from fastcar.toolkit.settings import ReplaySettings

ONE, LAYERS, PLACES = 1 << 20, config().layers, layout().tokens_per_frame


@pytest.fixture(scope="module")
def backends(lowered):
    """(bits, changes of the shape) -> the reference and onnxruntime."""

    @cache
    def pair(bits: int, **changes: int):
        model, path = lowered(bits, criterion="mlp-input", **changes)
        return reference_backend(model), onnx_backend(model, path)

    return pair


@pytest.mark.parametrize(("policy", "max_age"), [("independent", None), ("mean", 1), ("all", 2)])
@pytest.mark.parametrize("clips", [1, 3])
@pytest.mark.parametrize("sampling", [GUIDED, UNGUIDED], ids=["guided", "unguided"])
@pytest.mark.parametrize("bits", [8, 4])
def test_a_clip_has_the_same_bits(backends, bits, sampling, clips, policy, max_age):
    """Of 1, 2, 3 and 6 rows."""
    reference, onnx = backends(bits)
    run = Run(clips=clips, sampling=sampling)
    dense = generate_clip(reference, run)
    assert not dense.replay.any() and np.abs(dense.scores).max() <= ONE
    assert_same_bits(generate_clip(onnx, run), dense)
    limits = np.array(median_thresholds(dense.scores, layout()))
    limits -= ONE // 8 if policy == "all" else 0
    run = Run(clips, sampling, ReplaySettings((), policy, max_age), tuple(limits.tolist()))
    expected = generate_clip(reference, run)
    assert 0.05 < expected.replay.mean() < 0.7
    assert_same_bits(generate_clip(onnx, run), expected)


@pytest.mark.parametrize("changes", [{"heads": 4, "kv_heads": 1}, {"heads": 3, "kv_heads": 3}, {"layers": 1}])
def test_other_shapes(backends, changes):
    reference, onnx = backends(8, **changes)
    limits = median_thresholds(generate_clip(reference, Run()).scores, layout())
    expected = generate_clip(reference, Run(thresholds=limits))
    assert 0.2 < expected.replay.mean() < 0.6
    assert_same_bits(generate_clip(onnx, Run(thresholds=limits)), expected)


@pytest.mark.parametrize("bits", [8, 4])
def test_a_depth_transformer(tmp_path, bits):
    model = random_depth_model(bits, depth=depth_config(), criterion="mlp-input")
    reference, onnx = reference_backend(model), onnx_backend(model, save_graph(model, tmp_path))
    run = Run(clips=2, thresholds=median_thresholds(generate_clip(reference, Run(clips=2)).scores, layout()))
    expected = generate_clip(reference, run)
    assert 0.1 < expected.replay.mean() < 0.7
    assert_same_bits(generate_clip(onnx, run), expected)


def test_the_criterion_changes_only_the_decision(lowered, backends):
    """Dense, and with everything replayed, codes and logits are those of the model decided by TAS."""
    by_tas, (reference, _) = reference_backend(lowered(8)[0]), backends(8)
    for limit in (NEVER, -NEVER):
        run = Run(clips=2, thresholds=(limit,) * LAYERS)
        records = [generate_clip(backend, run) for backend in (by_tas, reference)]
        for name in ("replay", "logits", "codes"):
            np.testing.assert_array_equal(getattr(records[0], name), getattr(records[1], name))
        assert (records[0].scores != records[1].scores).any()


@pytest.mark.parametrize("which", [0, 1], ids=["reference", "onnxruntime"])
def test_a_replayed_value_keeps_the_input_it_was_computed_from(backends, which):
    """With everything replayed, scores are towards frame 0 however long ago; dense, towards the frame before."""
    backend, read = backends(8)[which], slice(0, PLACES - 1)  # the last place of the last frame is not read
    always, never = ((limit,) * LAYERS for limit in (-NEVER, NEVER))
    generate_clip(backend, Run(thresholds=always), frames=1)
    first = backend.state.mlp_input_cache[read].copy()
    assert first.dtype == np.uint8 and (first != ZERO).any(axis=-1).all()
    generate_clip(backend, Run(thresholds=always), frames=4)
    np.testing.assert_array_equal(backend.state.mlp_input_cache[read], first)
    generate_clip(backend, Run(thresholds=never), frames=4)
    last = backend.state.mlp_input_cache[read]
    assert (last != first).any(axis=-1).all()
    np.testing.assert_array_equal(np.abs(last.astype(int) - ZERO).max(axis=-1), 127)


def test_equal_inputs_score_one(backends):
    """A step that is run again, over the cache it left: every layer sees the MLP input that is kept."""
    backend = backends(8)[1]
    backend.start(1, layout().positions, UNGUIDED, ReplaySettings())
    backend.prefill(np.full((1, PROMPT), 3))
    backend.inputs["threshold"][:] = NEVER
    backend._step(np.array([9]))
    kept = backend.state.mlp_input_cache[0].copy()
    backend.state.position -= 1  # the same step again
    backend.state.mask[:, backend.state.position] = -(1 << 30)
    assert backend._step(np.array([9]))["tas"].tolist() == [ONE] * LAYERS
    np.testing.assert_array_equal(backend.state.mlp_input_cache[0], kept)


def test_start_resets_everything(backends):
    for backend in backends(8):
        run = Run(thresholds=(ONE // 4,) * LAYERS)
        first = generate_clip(backend, run)
        generate_clip(backend, Run(clips=3, seed=1, thresholds=(-NEVER,) * LAYERS))
        assert_same_bits(generate_clip(backend, run), first)


def test_only_this_criterion_keeps_inputs():
    assert DecodeState(config(), layout(), rows=2, limit=9).mlp_input_cache is None
    state = DecodeState(config(), layout(), rows=2, limit=9, criterion="mlp-input")
    assert state.mlp_input_cache.shape == (PLACES, LAYERS, 2, config().hidden)
    assert (state.mlp_input_cache == ZERO).all()


def test_an_unknown_criterion():
    with pytest.raises(ValueError, match="criterion 'cos'; expected one of tas, mlp-input"):
        random_model(8, criterion="cos")


def test_whole_clips_of_car(tmp_path: Path):
    """The trained model: 16 frames of 64 codes, two rows that decide together."""
    bundle = export_model("car", tmp_path / "car", recipe="w8a8", criterion="mlp-input", evaluate=False)
    layers = bundle.manifest.config.layers
    replay = ReplaySettings.uniform(0.9, layers, "all")
    settings = {"seed": 1, "replay": replay, "record_logits": True}
    runs = [
        fastcar.generate(bundle, "left turn", backend=open_backend(name, bundle), **settings)
        for name in ("onnxruntime", "reference")
    ]
    assert 0.1 < runs[0].eligible_replay_ratio < 0.95
    assert np.nanmax(runs[0].tas) <= 1 and np.nanmedian(runs[0].tas) > 0.5
    for name in ("codes", "tas", "replay", "logits"):
        np.testing.assert_array_equal(getattr(runs[0], name), getattr(runs[1], name))
