"""A clip of the integer model against float models with the same weights: PyTorch's, and one that replays."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from float_decoder import FloatDecoder, float_llama
from random_models import (
    UNGUIDED,
    Run,
    config,
    generate_clip,
    layout,
    median_thresholds,
    random_model,
    reference_backend,
)

from fastcar.toolkit.numerics.tas import NEVER, tas_unit

FRAMES = layout(frames=3, grid=(5, 6))  # positions up to 92
SHAPE = config(layers=2)


def clip(model, **run):
    """A clip of two rows, the tokens that were read at each position, and the first position that is recorded."""
    settings = Run(clips=2, sampling=UNGUIDED, **run)
    record = generate_clip(reference_backend(model), settings)
    prompt = np.random.default_rng(settings.seed).integers(0, FRAMES.code_offset, (2, FRAMES.prompt_length))
    tokens = np.concatenate([prompt, record.codes.T[:, :-1] + FRAMES.code_offset], axis=1)
    assert record.first == FRAMES.prompt_length - 1 and tokens.shape[1] == record.first + len(record.codes)
    return record, tokens


def relative(found: np.ndarray, exact: np.ndarray) -> float:
    """The root mean square over a frame's steps of |found - exact| / |exact|, of the frame where it is largest."""
    squared = ((found - exact) ** 2).sum(axis=-1) / (exact**2).sum(axis=-1)
    return max(np.sqrt(frame.mean()) for frame in np.split(squared, FRAMES.frames if len(squared) > 30 else 1))


def steps_of(decoder: FloatDecoder, tokens: np.ndarray, first: int, replay: np.ndarray | None = None):
    made = [
        decoder.step(column, None if replay is None or position < first else replay[position - first])
        for position, column in enumerate(tokens.T)
    ]
    logits, tas = (np.stack(parts) for parts in zip(*made, strict=True))
    return logits[first:], tas[first:]


def thresholds_of(model):
    scores = generate_clip(reference_backend(model), Run(clips=2, sampling=UNGUIDED)).scores
    return median_thresholds(scores, FRAMES)


@pytest.mark.parametrize("heads", [(6, 2), (4, 4), (4, 1)])
@pytest.mark.parametrize("bits", [8, 4])
def test_dense_logits_are_those_of_the_float_model(bits, heads):
    shape = config(layers=2, heads=heads[0], kv_heads=heads[1])
    model = random_model(bits, shape=shape, frames=FRAMES)
    record, tokens = clip(model)
    codes = slice(FRAMES.code_offset, FRAMES.code_offset + FRAMES.codes)
    exact = float_llama(model)(torch.from_numpy(tokens))[:, record.first :, codes].numpy().swapaxes(0, 1)
    assert relative(record.logits, exact) < 0.03
    decoded, _ = steps_of(FloatDecoder(model), tokens, record.first)
    assert relative(decoded, exact) < 1e-4, "the float decoder of these tests is PyTorch's"


@pytest.mark.parametrize(
    "tas_query, tas_heads", [("post_rope", "mean"), ("pre_rope", "mean"), ("post_rope", "max"), ("pre_rope", "min")]
)
@pytest.mark.parametrize("bits", [8, 4])
def test_replayed_logits_and_scores_are_those_of_a_float_model_that_replays(bits, tas_query, tas_heads):
    """The same flags give the same logits, and the same logits of attention to the frame before give the flags."""
    model = random_model(bits, shape=SHAPE, frames=FRAMES, tas_query=tas_query, tas_heads=tas_heads)
    limits = thresholds_of(model)
    record, tokens = clip(model, thresholds=limits)
    logits, tas = steps_of(FloatDecoder(model), tokens, record.first, record.replay)
    assert relative(record.logits, logits) < 0.03

    eligible = np.arange(len(record.codes)) + record.first >= FRAMES.frame_start(1)
    assert 0.2 < record.replay[eligible].mean() < 0.8 and not record.replay[~eligible].any()
    units = np.array([tas_unit(layer.tas_scale, SHAPE.heads, SHAPE.head_dim) for layer in model.layers])[:, None]
    found, exact = (record.scores * units)[eligible], tas[eligible]
    averaged = 1.0 if tas_heads == "mean" else 1.5  # the rounding of one head is not averaged with that of others
    noise = 0.15 * averaged * exact.std()
    assert np.abs(found - exact).max() < noise and (found - exact).std() < 0.03 * averaged * exact.std()
    margin = exact - np.array(limits)[:, None] * units
    clear = np.abs(margin) > noise
    assert clear.mean() > (0.8 if tas_heads == "mean" else 0.7)
    np.testing.assert_array_equal(record.replay[eligible][clear], (margin > 0)[clear])


def test_a_replayed_clip_is_not_a_dense_one():
    """The bound of the tests above tells the two apart."""
    model = random_model(8, shape=SHAPE, frames=FRAMES)
    record, tokens = clip(model, thresholds=(-NEVER,) * SHAPE.layers)
    logits, _ = steps_of(FloatDecoder(model), tokens, record.first)
    assert relative(record.logits, logits) > 0.3


def test_guided_logits_mix_both_rows():
    model = random_model(8, shape=SHAPE, frames=FRAMES)
    run = Run()
    record = generate_clip(reference_backend(model), run, frames=1)
    prompt = np.random.default_rng(run.seed).integers(0, FRAMES.code_offset, (2, FRAMES.prompt_length))
    tokens = np.concatenate([prompt, np.tile(record.codes.T[:, :-1] + FRAMES.code_offset, (2, 1))], axis=1)
    logits, _ = steps_of(FloatDecoder(model), tokens, record.first)
    conditional, unconditional = logits[:, :1], logits[:, 1:]
    assert relative(record.logits, unconditional + 3.0 * (conditional - unconditional)) < 0.05
