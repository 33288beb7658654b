"""Integer attention against softmax in binary64, and its independence of any order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from fastcar.toolkit.numerics.attention import MASKED, AttentionScales, attention, quantize_heads


@dataclass
class Case:
    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    k_past: np.ndarray
    v_past: np.ndarray
    mask: np.ndarray
    q_scale: np.ndarray
    k_scale: np.ndarray
    v_scale: np.ndarray

    def run(self) -> np.ndarray:
        scales = AttentionScales.of(self.q_scale, self.k_scale, self.v_scale, self.q.shape[-1])
        return attention(self.q, self.k, self.v, self.k_past, self.v_past, self.mask, scales)


def case(heads=6, kv_heads=2, head_dim=10, slots=33, filled=0.7, rows=3, peaked=1.0, seed=0) -> Case:
    rng = np.random.default_rng(seed)
    draw = lambda *shape: np.clip(np.rint(rng.normal(0, 40, shape)), -128, 127).astype(np.int8)
    mask = np.where(rng.random((rows, slots)) < filled, 0, MASKED).astype(np.int32)
    scales = [rng.uniform(0.02, 0.04, n).astype(np.float32) for n in (heads, kv_heads, kv_heads)]
    return Case(
        draw(rows, heads, head_dim),
        draw(rows, kv_heads, head_dim),
        draw(rows, kv_heads, head_dim),
        draw(rows, kv_heads, slots, head_dim),
        draw(rows, kv_heads, slots, head_dim),
        mask,
        scales[0] * np.float32(peaked),
        *scales[1:],
    )


def softmax_attention(c: Case) -> np.ndarray:
    """One row, one head, one slot at a time."""
    rows, heads, head_dim = c.q.shape
    share = heads // c.k.shape[1]
    result = np.zeros((rows, heads, head_dim))
    for row in range(rows):
        for head in range(heads):
            kv = head // share
            slots = [slot for slot in range(c.mask.shape[1]) if c.mask[row, slot] == 0]
            keys = [*(c.k_past[row, kv, slot] for slot in slots), c.k[row, kv]]
            values = [*(c.v_past[row, kv, slot] for slot in slots), c.v[row, kv]]
            unit = float(c.q_scale[head]) * float(c.k_scale[kv]) / head_dim**0.5
            logits = np.array([float(np.dot(c.q[row, head].astype(int), key.astype(int))) * unit for key in keys])
            weight = np.exp(logits - logits.max())
            mean = (weight[:, None] * np.array(values, np.float64)).sum(axis=0) / weight.sum()
            result[row, head] = mean * float(c.v_scale[kv])
    return result.reshape(rows, heads * head_dim)


@pytest.mark.parametrize("kv_heads", [1, 2, 3, 6])
@pytest.mark.parametrize("slots", [1, 7, 33, 130])
def test_softmax(kv_heads, slots):
    """Weights are within 0.07 % and one unit of 2^-15 of the peak's, so the mean is within twice that of the values."""
    c = case(kv_heads=kv_heads, slots=slots)
    found = c.run()
    assert found.dtype == np.float32 and found.shape == (3, 60)
    assert np.abs(found - softmax_attention(c)).max() <= 2 * (7e-4 + slots * 2**-15) * 128 * 0.04


@pytest.mark.parametrize("heads", [1, 2, 4])
def test_one_kv_head(heads):
    c = case(heads=heads, kv_heads=1, head_dim=32, slots=20)
    assert np.abs(c.run() - softmax_attention(c)).max() <= 0.01


def test_sharp_softmax_picks_the_largest_score():
    """Scores so far apart that every other weight is below 2^-15: the value of the largest, exactly."""
    c = case(filled=1.0, peaked=1e3)
    exact = softmax_attention(c)
    np.testing.assert_allclose(c.run(), exact, rtol=1e-6, atol=0.005 * np.abs(exact).max())


@pytest.mark.parametrize("slots", [0, 1, 9])
def test_masked_past_leaves_the_position_itself(slots):
    c = case(slots=slots, filled=0.0)
    expected = c.v * c.v_scale[:, None]
    np.testing.assert_array_equal(c.run().reshape(3, 2, 3, 10), np.repeat(expected[:, :, None], 3, axis=2))


def test_masked_slots_do_not_count():
    """Whatever lies in them, extreme values included, and however many there are."""
    c = case()
    expected = c.run()
    hidden = c.mask[:, None, :, None] != 0
    for value in (-128, 127):
        c.k_past, c.v_past = (np.where(hidden, value, x).astype(np.int8) for x in (c.k_past, c.v_past))
        np.testing.assert_array_equal(c.run(), expected)
    more = [(0, 0), (0, 0), (0, 50), (0, 0)]
    c.k_past, c.v_past = (np.pad(x, more, constant_values=100) for x in (c.k_past, c.v_past))
    c.mask = np.pad(c.mask, [(0, 0), (0, 50)], constant_values=MASKED)
    np.testing.assert_array_equal(c.run(), expected)


def test_order_of_slots_does_not_count():
    c = case(slots=130)
    expected = c.run()
    order = np.random.default_rng(5).permutation(130)
    c.k_past, c.v_past, c.mask = c.k_past[:, :, order], c.v_past[:, :, order], c.mask[:, order]
    np.testing.assert_array_equal(c.run(), expected)


def test_order_of_the_head_dimension_does_not_count():
    c = case()
    expected = c.run()
    order = np.random.default_rng(6).permutation(10)
    c.q, c.k, c.k_past = c.q[..., order], c.k[..., order], c.k_past[..., order]
    np.testing.assert_array_equal(c.run(), expected)


def test_rows_do_not_touch_each_other():
    c = case()
    whole = c.run()
    for row in range(3):
        part = {name: getattr(c, name)[row : row + 1] for name in ("q", "k", "v", "k_past", "v_past", "mask")}
        alone = Case(**part, q_scale=c.q_scale, k_scale=c.k_scale, v_scale=c.v_scale)
        np.testing.assert_array_equal(alone.run(), whole[row : row + 1])


def test_extreme_operands():
    """The largest scores of either sign beside masked ones: the mask still wins."""
    c = case(slots=4, head_dim=512)
    c.q[:], c.k[:] = -128, 127
    c.k_past[:] = 127
    c.mask[:] = 0
    c.k_past[:, :, 3], c.mask[:, 3] = -128, MASKED
    assert np.abs(c.run() - softmax_attention(c)).max() <= 0.01


def test_quantize_heads():
    x = np.array([[[0.5, 1.5, 2.5, -0.5], [1e9, -1e9, 127.4, -128.5]]], np.float32)
    assert quantize_heads(x, np.array([1, 1], np.float32)).tolist() == [[[0, 2, 2, 0], [127, -128, 127, -128]]]
    assert quantize_heads(x, np.array([0.5, 2], np.float32))[0, 0].tolist() == [1, 3, 5, -1]


def test_scales():
    scales = AttentionScales.of(*(np.array(x, np.float32) for x in ([0.5, 0.25, 1, 2], [0.125, 1], [3, 4])), 16)
    expected = [q * k / 4 / np.log(2) * 1024 for q, k in ((0.5, 0.125), (0.25, 0.125), (1, 1), (2, 1))]
    np.testing.assert_allclose(scales.exponent, expected, rtol=1e-7)
    assert scales.value.tolist() == [3, 4]
    with pytest.raises(ValueError, match="too small to be a scale"):
        AttentionScales.of(*(np.full(2, 1e-5, np.float32) for _ in range(3)), 16)
