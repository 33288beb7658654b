"""RMSNorm with int8 output against its formula in binary64."""

from __future__ import annotations

import numpy as np
import pytest

from fastcar.toolkit.numerics.norm import rms_norm


def rows(kind: str, hidden: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    x = rng.normal(0, 1, (4, hidden))
    if kind == "spike":
        x = 1e-3 * x
        x[:, 5] = 40
    factor = {"tiny": 1e-10, "below eps": 1e-3, "large": 1e18, "huge": 1e30}.get(kind, 1.0)
    return (x * factor).astype(np.float32)


@pytest.mark.parametrize("hidden", [48, 256])
@pytest.mark.parametrize("kind", ["normal", "spike", "tiny", "below eps", "large", "huge"])
def test_formula(kind, hidden):
    """Off by half a step of int8, and by half a step of the int16 that the row is brought to first."""
    x, eps = rows(kind, hidden), 1e-5
    gain = np.random.default_rng(1).uniform(-2, 2, hidden).astype(np.float32)
    with np.errstate(over="ignore"):  # of a huge row, eps / step^2 is rightly 0
        quantized = rms_norm(x, gain, eps)
    found = quantized.values * quantized.scale.astype(np.float64)
    exact = x.astype(np.float64)
    root = np.sqrt(np.mean(exact**2, axis=-1, keepdims=True) + eps)
    exact = exact / root * gain
    int16 = np.abs(x).max(axis=-1, keepdims=True) / root * np.abs(gain).max() / 65534
    assert (np.abs(found - exact) <= 0.5001 * quantized.scale + 2 * int16 + 2e-6 * np.abs(exact)).all()
    assert np.abs(quantized.values).max(axis=-1).tolist() == [127] * 4


def test_zero_rows():
    """A row of zeros, and one below every purpose, give zeros and a usable scale, whatever their neighbours are."""
    x = np.zeros((3, 48), np.float32)
    x[1], x[2] = 1e-30, np.linspace(-1, 1, 48)
    quantized = rms_norm(x, np.ones(48, np.float32), 1e-5)
    assert not quantized.values[:2].any() and quantized.values[2].any()
    assert np.isfinite(quantized.scale).all() and (quantized.scale > 0).all()


def test_eps_counts():
    x = np.full((1, 48), 1e-3, np.float32)
    quantized = rms_norm(x, np.ones(48, np.float32), 1e-5)
    assert quantized.values[0, 0] * quantized.scale.item() == pytest.approx(1e-3 / np.sqrt(1e-6 + 1e-5), rel=1e-4)


def test_order_of_the_row_does_not_count():
    rng = np.random.default_rng(2)
    x, gain = rows("normal", 256), rng.uniform(0.5, 2, 256).astype(np.float32)
    order = rng.permutation(256)
    straight, shuffled = rms_norm(x, gain, 1e-5), rms_norm(x[:, order], gain[order], 1e-5)
    np.testing.assert_array_equal(shuffled.values, straight.values[:, order])
    np.testing.assert_array_equal(shuffled.scale, straight.scale)
