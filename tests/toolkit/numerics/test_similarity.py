"""The cosine of MLP inputs against the quotient of exact integers, and what a replayed value is compared with."""

from __future__ import annotations

import math

import numpy as np
import pytest
from float_decoder import FloatDecoder
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

from fastcar.toolkit.numerics.similarity import SIMILARITY_UNIT, input_similarity, inputs_to_cache

ONE = round(1 / SIMILARITY_UNIT)


def exact(one: np.ndarray, other: np.ndarray) -> float:
    """Of two rows, from Python's integers."""
    a, b = one.tolist(), other.tolist()
    dot = lambda x, y: sum(p * q for p, q in zip(x, y, strict=True))
    return dot(a, b) / math.sqrt(dot(a, a) * dot(b, b))


@pytest.mark.parametrize("hidden", [1, 7, 48, 1027, 5000])
def test_score_is_the_rounded_cosine(hidden):
    """Half a unit of the last rounding, and less than a third of one for those before."""
    rng = np.random.default_rng(hidden)
    values = rng.integers(-127, 128, (40, hidden)).astype(np.int8)
    noise = rng.integers(-3, 4, values.shape) * (rng.random((40, 1)) < 0.5)
    before = np.clip(np.where(noise.any(axis=1, keepdims=True), values + noise, rng.permuted(values)), -127, 127)
    values[:, 0], before[:, 0] = 127, rng.choice([-127, 127], 40)  # no row of zeros
    score = input_similarity(values, before.astype(np.int8))
    assert score.dtype == np.int64 and score.shape == (40,)
    for row in range(40):
        assert abs(score[row] - exact(values[row], before[row]) * ONE) < 0.8


def test_equal_and_opposite_rows_are_exact():
    """Whatever the norm, also where binary32 does not hold its square."""
    rng = np.random.default_rng(0)
    for hidden in (1, 3, 300, 4099, 8192):
        values = rng.integers(-127, 128, (20, hidden)).astype(np.int8)
        values[:, 0] = 127
        assert input_similarity(values, values).tolist() == [ONE] * 20
        assert input_similarity(values, -values).tolist() == [-ONE] * 20


def test_no_score_is_beyond_one():
    """Parallel rows of different lengths, and rows that differ in one value of many."""
    rng = np.random.default_rng(1)
    small = rng.integers(-42, 43, (500, 700)).astype(np.int8)
    near = small.copy()
    near[:, 5] += 1
    for other in (2 * small, 3 * small, near):
        score = input_similarity(small, other.astype(np.int8))
        assert (score <= ONE).all() and (score >= ONE - 50).all()
    assert (input_similarity(small, 3 * small) == ONE).all()


def test_a_row_of_zeros_is_like_no_other():
    zero, ones = np.zeros((1, 9), np.int8), np.ones((1, 9), np.int8)
    assert [input_similarity(*pair).item() for pair in ((zero, ones), (ones, zero), (zero, zero))] == [0, 0, 0]


def test_order_of_values_does_not_count():
    rng = np.random.default_rng(2)
    values, before = rng.integers(-127, 128, (2, 6, 333)).astype(np.int8)
    order = rng.permutation(333)
    shuffled = input_similarity(values[:, order], before[:, order])
    np.testing.assert_array_equal(shuffled, input_similarity(values, before))


def test_largest_operands():
    """At the most values that int32 holds the sum of."""
    values = np.full((1, 133_144), 127, np.int8)
    assert 127 * 127 * values.size < 2**31 <= 127 * 127 * (values.size + 1)
    assert input_similarity(values, values).item() == ONE


def test_a_replayed_row_keeps_its_input():
    values, before = np.arange(6, dtype=np.int8).reshape(3, 2), -np.arange(6, dtype=np.int8).reshape(3, 2)
    kept = inputs_to_cache(values, before, np.array([False, True, False]))
    assert kept.dtype == np.int8 and kept.tolist() == [[0, 1], [-2, -3], [4, 5]]


@pytest.mark.parametrize("heads", [(6, 2), (4, 4), (4, 1)])
@pytest.mark.parametrize("bits", [8, 4])
def test_scores_of_a_clip_are_those_of_a_float_model_that_replays(bits, heads):
    """Towards the input that the used output was computed from, frames ago where it was replayed since."""
    frames, shape = layout(frames=4, grid=(3, 4)), config(layers=2, heads=heads[0], kv_heads=heads[1])
    model = random_model(bits, shape=shape, frames=frames, criterion="mlp-input")
    settings = Run(clips=2, sampling=UNGUIDED)
    dense = generate_clip(reference_backend(model), settings)
    limits = median_thresholds(dense.scores, frames)
    settings = Run(clips=2, sampling=UNGUIDED, thresholds=limits)
    record = generate_clip(reference_backend(model), settings)
    prompt = np.random.default_rng(settings.seed).integers(0, frames.code_offset, (2, frames.prompt_length))
    tokens = np.concatenate([prompt, record.codes.T[:, :-1] + frames.code_offset], axis=1)
    decoder = FloatDecoder(model)
    for position, column in enumerate(tokens.T):
        decoder.step(column, None if position < record.first else record.replay[position - record.first])
    eligible = np.arange(len(record.codes)) + record.first >= frames.frame_start(1)
    assert 0.2 < record.replay[eligible].mean() < 0.8 and not record.replay[~eligible].any()
    assert (record.replay[eligible][:-12] & record.replay[eligible][12:]).any(), "some replay twice in a row"
    found = record.scores[eligible] * SIMILARITY_UNIT
    cosine = decoder.cosine.swapaxes(0, 1)[record.first : record.first + len(record.codes)][eligible]
    assert np.abs(found - cosine).max() < 0.05 and (found - cosine).std() < 0.01
    np.testing.assert_array_equal(record.replay[eligible], record.scores[eligible] > np.array(limits)[:, None])
