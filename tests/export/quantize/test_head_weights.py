"""Heads weighted in TAS: what the integers stand for, and files that are refused."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from random_models import config, random_layer

from fastcar.export.quantize.head_weights import lost_heads, read_head_weights, weigh_heads
from fastcar.toolkit.errors import UsageError
from fastcar.toolkit.numerics.tas import tas_unit, temporal_attention_score

SHAPE = config(layers=2)
HEADS, HEAD_DIM = SHAPE.heads, SHAPE.head_dim
WEIGHTS = {
    "shares": [0.1, 0.2, 0.3, 0.1, 0.2, 0.1],
    "signs": [1, -0.5, 0, 2, -3, 0.25],
    "one head": [0, 0, 0, 0, 7, 0],
    "one head, negatively": [0, -1e-3, 0, 0, 0, 0],
    "beyond the range of a sum": [1e308, 1e308, -1e308, 1e308, 1e308, 1e308],
    "hardly above zero": [5e-324, 0, 5e-324, 5e-324, -5e-324, 0],
    "far apart": [1e-12, 1e-3, 1e-2, 1, 1, 1],
}


def layer_of(seed: int):
    """Calibration gives the largest multiplier 127."""
    layer = random_layer(np.random.default_rng(seed), SHAPE, {})
    multiplier = layer.tas_multiplier.copy()
    multiplier[seed % HEADS] = 127
    return replace(layer, tas_multiplier=multiplier)


@pytest.mark.parametrize("case", WEIGHTS)
def test_score_is_the_weighted_mean_of_logits(case):
    """In exact fractions: off by no more than half a step of every head's multiplier."""
    weights, rng = WEIGHTS[case], np.random.default_rng(3)
    plain = layer_of(3)
    layer = weigh_heads(plain, weights)
    assert layer.tas_multiplier.dtype == np.int32 and np.abs(layer.tas_multiplier).max() == 127
    q = rng.integers(-128, 128, (4, HEADS, HEAD_DIM)).astype(np.int8)
    k = rng.integers(-128, 128, (4, SHAPE.kv_heads, HEAD_DIM)).astype(np.int8)
    score, unit = temporal_attention_score(q, k, layer.tas_multiplier), tas_unit(layer.tas_scale, HEADS, HEAD_DIM)
    shares = [Fraction(weight) / sum(abs(Fraction(other)) for other in weights) for weight in weights]
    for head, share in enumerate(shares):  # what a unit of its dot product adds to HEADS * TAS
        exact = float(share * HEADS * int(plain.tas_multiplier[head]) * Fraction(plain.tas_scale))
        assert abs(int(layer.tas_multiplier[head]) * layer.tas_scale - exact) <= layer.tas_scale / 2 * (1 + 1e-9)
    for row in range(4):
        exact, bound = Fraction(0), Fraction(0)
        for head in range(HEADS):
            pairs = zip(q[row, head].tolist(), k[row, head * SHAPE.kv_heads // HEADS].tolist(), strict=True)
            dot = sum(a * b for a, b in pairs)
            exact += shares[head] * int(plain.tas_multiplier[head]) * dot * Fraction(plain.tas_scale)
            bound += Fraction(layer.tas_scale) / HEADS * abs(dot) / 2
        found, exact, bound = Fraction(unit) * int(score[row]), float(exact) / HEAD_DIM**0.5, float(bound)
        assert abs(float(found) - exact) <= bound / HEAD_DIM**0.5 * (1 + 1e-9)


@pytest.mark.parametrize("weight", [1, 0.1, 3e-300])
def test_equal_weights_change_nothing(weight):
    plain = layer_of(4)
    layer = weigh_heads(plain, [weight] * HEADS)
    np.testing.assert_array_equal(layer.tas_multiplier, plain.tas_multiplier)
    assert layer.tas_scale == plain.tas_scale


def test_the_sign_of_all_weights_turns_the_score():
    up, down = (weigh_heads(layer_of(5), [sign * weight for weight in WEIGHTS["signs"]]) for sign in (1, -1))
    np.testing.assert_array_equal(up.tas_multiplier, -down.tas_multiplier)
    assert up.tas_scale == down.tas_scale


def test_nothing_else_of_the_layer_changes():
    plain = layer_of(6)
    layer = weigh_heads(plain, WEIGHTS["signs"])
    assert replace(layer, tas_multiplier=plain.tas_multiplier, tas_scale=plain.tas_scale) == plain


def test_heads_that_do_not_count_are_told():
    weights = WEIGHTS["far apart"]
    layer = weigh_heads(layer_of(7), weights)
    lost = np.flatnonzero(layer.tas_multiplier == 0).tolist()
    assert lost == [0, 1]
    assert lost_heads(4, layer, weights) == [
        "layers.4: weights in TAS of heads 0, 1 are too small beside the largest to count"
    ]
    assert not lost_heads(4, weigh_heads(layer_of(7), WEIGHTS["one head"]), WEIGHTS["one head"])


def test_a_file_is_read(tmp_path):
    path = tmp_path / "w.json"
    path.write_text(json.dumps([WEIGHTS["shares"], WEIGHTS["signs"]]))
    assert read_head_weights(path, SHAPE) == (tuple(WEIGHTS["shares"]), tuple(WEIGHTS["signs"]))


GOOD = json.dumps([1] * HEADS)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is not JSON"),
        ("[[1, 2", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("{}", "other things than lists"),
        ("[1, 2]", "other things than lists"),
        (f"[{GOOD}]", "1 lists in"),
        (f"[{GOOD}, {GOOD}, {GOOD}]", "3 lists in"),
        (f"[{GOOD}, [1, 1, 1]]", "3 weights in layer 1"),
        (f"[{GOOD}, [0, 0, 0, 0.0, -0.0, 0]]", "zeros alone in layer 1"),
        (f"[{GOOD}, [1, NaN, 1, 1, 1, 1]]", "nan as the weight of head 1 in layer 1"),
        (f"[[1, 1, 1, 1, 1, -Infinity], {GOOD}]", "-inf as the weight of head 5 in layer 0"),
        (f"[[1, 1, 1e999, 1, 1, 1], {GOOD}]", "inf as the weight of head 2 in layer 0"),
        (f"[[1, 1, {10**400}, 1, 1, 1], {GOOD}]", "as the weight of head 2 in layer 0"),
        (f"[[1, null, 1, 1, 1, 1], {GOOD}]", "None as the weight of head 1"),
        (f'[[1, 1, "1", 1, 1, 1], {GOOD}]', "'1' as the weight of head 2"),
        (f"[[true, 1, 1, 1, 1, 1], {GOOD}]", "True as the weight of head 0"),
    ],
    ids=range(16),
)
def test_a_file_is_refused(tmp_path, text, words):
    path = tmp_path / "w.json"
    path.write_text(text)
    with pytest.raises(UsageError) as refused:
        read_head_weights(path, SHAPE)
    assert "--tas-head-weights: " in str(refused.value) and words in str(refused.value)
    assert len(str(refused.value)) < 400


def test_a_file_that_cannot_be_read_is_refused(tmp_path):
    (tmp_path / "text").write_bytes(b"\xff\xfe")
    for name, words in (("none", "No such file"), (".", "Is a directory"), ("text", "is not JSON")):
        with pytest.raises(UsageError, match=words):
            read_head_weights(tmp_path / name, SHAPE)
