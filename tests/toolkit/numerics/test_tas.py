"""Temporal Attention Score and the decision to replay against their definitions, written out."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fastcar.toolkit.config import TAS_HEADS
from fastcar.toolkit.numerics.tas import (
    NEVER,
    Pooling,
    integer_threshold,
    replay_decision,
    tas_unit,
    temporal_attention_score,
)

ROWS, HEADS, HEAD_DIM = 4, 6, 10


@pytest.mark.parametrize("kv_heads", [1, 2, 3, 6])
def test_score_is_the_mean_attention_logit(kv_heads):
    """mean over heads of <q, k> / sqrt(head_dim), on what the integers stand for."""
    rng = np.random.default_rng(kv_heads)
    q = rng.integers(-128, 128, (ROWS, HEADS, HEAD_DIM)).astype(np.int8)
    k = rng.integers(-128, 128, (ROWS, kv_heads, HEAD_DIM)).astype(np.int8)
    multiplier, tas_scale = rng.integers(1, 128, HEADS).astype(np.int32), 1.3e-5
    k_scale = rng.uniform(0.01, 0.04, kv_heads)
    score = temporal_attention_score(q, k, multiplier)
    assert score.dtype == np.int64 and score.shape == (ROWS,)
    for row in range(ROWS):
        logits = []
        for head in range(HEADS):
            kv = head * kv_heads // HEADS
            q_scale = multiplier[head] * tas_scale / k_scale[kv]
            real_q = [x * q_scale for x in q[row, head].tolist()]
            real_k = [x * k_scale[kv] for x in k[row, kv].tolist()]
            logits.append(sum(a * b for a, b in zip(real_q, real_k, strict=True)) / math.sqrt(HEAD_DIM))
        mean = sum(logits) / HEADS
        assert int(score[row]) * tas_unit(tas_scale, HEADS, HEAD_DIM) == pytest.approx(mean, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("tas_heads", ["max", "min"])
@pytest.mark.parametrize("kv_heads", [1, 2, 6])
def test_score_of_one_head(kv_heads, tas_heads):
    """The same unit turns it into the largest or least logit, found here head by head in Python's integers."""
    rng = np.random.default_rng(kv_heads)
    q = rng.integers(-128, 128, (ROWS, HEADS, HEAD_DIM)).astype(np.int8)
    k = rng.integers(-128, 128, (ROWS, kv_heads, HEAD_DIM)).astype(np.int8)
    multiplier, tas_scale = rng.integers(1, 128, HEADS).astype(np.int32), 1.3e-5
    score = temporal_attention_score(q, k, multiplier, tas_heads)
    assert score.dtype == np.int64 and score.shape == (ROWS,)
    chosen = set()
    for row in range(ROWS):
        logits = []
        for head in range(HEADS):
            pairs = zip(q[row, head].tolist(), k[row, head * kv_heads // HEADS].tolist(), strict=True)
            logits.append(int(multiplier[head]) * tas_scale * sum(a * b for a, b in pairs) / math.sqrt(HEAD_DIM))
        one = sorted(logits)[-1 if tas_heads == "max" else 0]
        chosen.add(logits.index(one))
        assert int(score[row]) * tas_unit(tas_scale, HEADS, HEAD_DIM) == pytest.approx(one, rel=1e-12)
    assert len(chosen) > 1  # the head is not the same in every row


@pytest.mark.parametrize("tas_heads", ["mean", "max", "min"])
def test_a_single_head_has_one_score(tas_heads):
    q = np.full((1, 1, 3), -2, np.int8)
    score = temporal_attention_score(q, q, np.array([5], np.int32), tas_heads)
    assert score.tolist() == [60]


def test_scores_of_all_equal_heads_do_not_depend_on_the_reduction():
    q = np.full((1, 128, 128), -128, np.int8)
    scores = [temporal_attention_score(q, q[:, :1], np.full(128, 127, np.int32), tas) for tas in TAS_HEADS]
    assert [score.tolist() for score in scores] == [[128 * 128 * 128 * 128 * 127]] * 3


def test_unknown_reduction():
    q = np.zeros((1, 1, 2), np.int8)
    with pytest.raises(ValueError, match="tas_heads 'median'; expected one of mean, max, min"):
        temporal_attention_score(q, q, np.ones(1, np.int32), "median")


def test_score_with_the_largest_operands():
    q = np.full((1, 128, 128), -128, np.int8)
    score = temporal_attention_score(q, q[:, :1], np.full(128, 127, np.int32))
    assert score.tolist() == [128 * 128 * 128 * 128 * 127] and 32 * score.item() < 32 * NEVER < 2**53


def test_order_of_heads_does_not_count():
    rng = np.random.default_rng(1)
    q, k = rng.integers(-128, 128, (2, ROWS, HEADS, HEAD_DIM)).astype(np.int8)
    multiplier, order = rng.integers(1, 128, HEADS).astype(np.int32), rng.permutation(HEADS)
    shuffled = temporal_attention_score(q[:, order], k[:, order], multiplier[order])
    np.testing.assert_array_equal(shuffled, temporal_attention_score(q, k, multiplier))


def test_threshold_and_score_agree():
    """Above the threshold in TAS exactly when above the integer, next to every boundary and on it."""
    rng = np.random.default_rng(2)
    for _ in range(2000):
        unit = tas_unit(float(10 ** rng.uniform(-7, -3)), int(rng.integers(1, 65)), 2 * int(rng.integers(1, 65)))
        score = int(rng.integers(-(2**31), 2**31))
        exact = score * unit
        around = (exact, math.nextafter(exact, math.inf), math.nextafter(exact, -math.inf), exact + unit * rng.random())
        for threshold in around:
            limit = integer_threshold(threshold, unit)
            for near in range(score - 2, score + 3):
                assert (near * unit > threshold) == (near > limit)


def test_threshold_signs_and_limits():
    assert [integer_threshold(t, 0.5) for t in (1.0, 1.2, -1.2, 0.0)] == [2, 2, -3, 0]
    assert integer_threshold(None, 0.5) == integer_threshold(math.inf, 0.5) == integer_threshold(1e300, 1e-9) == NEVER
    assert integer_threshold(-math.inf, 0.5) == -NEVER


def decide(score, threshold, eligible, age, max_age, policy):
    """The policies in words: alone; the mean score for all; all or none. A row that may not replay vetoes the rest."""
    rows = range(len(score))
    if policy == "mean":
        above = [sum(score) > threshold * len(score)] * len(score)
    else:
        above = [score[row] > threshold for row in rows]
    may = [above[row] and eligible[row] and age[row] < max_age for row in rows]
    return may if policy == "independent" else [all(may)] * len(score)


@pytest.mark.parametrize("policy", ["independent", "mean", "all"])
@pytest.mark.parametrize("rows", [1, 2, 3, 10])
def test_decision(policy, rows):
    rng = np.random.default_rng(rows)
    seen = set()
    for _ in range(300):
        score = rng.integers(-3, 4, rows) + rng.integers(-2, 3)
        threshold = int(rng.integers(-3, 4))
        eligible = rng.random(rows) < 0.9 ** (1 / rows)
        age, max_age = rng.integers(0, 3, rows).astype(np.int32), int(rng.choice([1, 2, 3, 2**31 - 1]))
        found = replay_decision(score, threshold, eligible, age, max_age, Pooling.of(policy, rows))
        expected = decide(score.tolist(), threshold, eligible.tolist(), age.tolist(), max_age, policy)
        assert found.dtype == bool and found.tolist() == expected
        seen.update(expected)
    assert seen == {True, False}


@pytest.mark.parametrize("policy", ["independent", "mean", "all"])
def test_a_score_at_the_threshold_does_not_replay(policy):
    ready = np.ones(2, bool), np.zeros(2, np.int32), 9, Pooling.of(policy, 2)
    for threshold in (-NEVER + 1, -7, 0, 12345, NEVER - 1):
        for score, expected in ((threshold, False), (threshold + 1, True)):
            assert replay_decision(np.full(2, score), threshold, *ready).tolist() == [expected] * 2


@pytest.mark.parametrize("policy", ["independent", "mean", "all"])
def test_never_and_always(policy):
    largest = 128 * 128 * 127 * 2**14
    ready = np.ones(32, bool), np.zeros(32, np.int32), 1, Pooling.of(policy, 32)
    assert not replay_decision(np.full(32, largest), NEVER, *ready).any()
    assert replay_decision(np.full(32, -largest), -NEVER, *ready).all()


def test_unknown_policy():
    with pytest.raises(ValueError, match="policy 'any'; expected one of independent, mean, all"):
        Pooling.of("any", 2)
