"""LayerNorm with int8 output against its formula in binary64."""

from __future__ import annotations

import numpy as np
import pytest

from fastcar.toolkit.numerics.layer_norm import layer_norm

EPS = 1e-5


def rows(kind: str, hidden: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    x = rng.normal(0, 1, (4, hidden))
    if kind == "spike":
        x = 1e-3 * x
        x[:, 5] = 40
    elif kind == "far from zero":
        x += [[3], [-30], [300], [-300]]
    factor = {"tiny": 1e-10, "below eps": 1e-3, "large": 1e18, "huge": 1e30}.get(kind, 1.0)
    return (x * factor).astype(np.float32)


def affine(hidden: int) -> np.ndarray:
    return np.random.default_rng(1).uniform(-2, 2, (2, hidden)).astype(np.float32)


@pytest.mark.parametrize("hidden", [48, 256, 4096])
@pytest.mark.parametrize("kind", ["normal", "spike", "far from zero", "tiny", "below eps", "large", "huge"])
def test_formula(kind, hidden):
    """Half a step of int8, and what the int16 step s makes of it.

    Each x moves by at most s / 2, so x - mean by s, and the deviation, hence sqrt(variance + eps), by s / 2: of the
    normalized z the error is at most (1 + |z| / 2) s / root, with the root that much smaller.
    """
    x, (gain, bias) = rows(kind, hidden), affine(hidden)
    with np.errstate(over="ignore"):  # of a huge row, eps / step^2 is rightly 0
        quantized = layer_norm(x, gain, bias, EPS)
    found = quantized.values * quantized.scale.astype(np.float64)
    exact = x.astype(np.float64)
    root = np.sqrt(exact.var(axis=-1, keepdims=True) + EPS)
    z = (exact - exact.mean(axis=-1, keepdims=True)) / root
    step = np.abs(x).max(axis=-1, keepdims=True).astype(np.float64) / 32767
    int16 = np.abs(gain) * (1 + np.abs(z) / 2) * step / (root - step / 2)
    float32 = 2e-6 * (np.abs(z * gain) + np.abs(bias))
    assert (np.abs(found - (z * gain + bias)) <= 0.5001 * quantized.scale + int16 + float32).all()
    assert np.abs(quantized.values).max(axis=-1).tolist() == [127] * 4


@pytest.mark.parametrize("value", [0, 1e-30, 1e-12, -0.5, 1e10, -1e25, 3e38])
def test_equal_values_leave_the_bias(value):
    gain, bias = affine(48)
    with np.errstate(over="ignore"):
        quantized = layer_norm(np.full((2, 48), value, np.float32), gain, bias, EPS)
    assert np.abs(quantized.values * quantized.scale - bias).max() <= 0.5001 * quantized.scale.max()


def test_the_opposite_row_gives_the_opposite():
    x, gain = rows("normal", 256), affine(256)[0]
    straight, mirrored = (layer_norm(sign * x, gain, np.zeros(256, np.float32), EPS) for sign in (1, -1))
    np.testing.assert_array_equal(straight.values, -mirrored.values)
    np.testing.assert_array_equal(straight.scale, mirrored.scale)


def test_integers_in_python():
    """Sums and differences at the largest row, where 32 bits would overflow, against Python's integers."""
    hidden = 32768
    x = np.ones((1, hidden), np.float32)
    x[0, ::2] = -1
    x[0, 1] = 0.25
    whole = [int(value) for value in np.rint(x[0] * 32767)]
    total = sum(whole)
    variance = hidden * sum(value * value for value in whole) - total**2
    assert 2**59 < variance < 2**60
    largest = max(abs(hidden * value - total) for value in whole) / variance**0.5
    quantized = layer_norm(x, np.ones(hidden, np.float32), np.zeros(hidden, np.float32), 1e-12)
    assert quantized.scale.item() * 127 == pytest.approx(largest, rel=1e-6)


def test_eps_counts():
    x = np.tile(np.array([1e-3, -1e-3], np.float32), (1, 24))
    quantized = layer_norm(x, np.ones(48, np.float32), np.zeros(48, np.float32), EPS)
    assert quantized.values[0, 0] * quantized.scale.item() == pytest.approx(1e-3 / np.sqrt(1e-6 + EPS), rel=1e-4)


def test_order_of_the_row_does_not_count():
    x, (gain, bias) = rows("normal", 256), affine(256)
    order = np.random.default_rng(2).permutation(256)
    straight = layer_norm(x, gain, bias, EPS)
    shuffled = layer_norm(x[:, order], gain[order], bias[order], EPS)
    np.testing.assert_array_equal(shuffled.values, straight.values[:, order])
    np.testing.assert_array_equal(shuffled.scale, straight.scale)
