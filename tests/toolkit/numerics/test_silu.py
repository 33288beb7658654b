"""SiLU in bytes against its formula."""

from __future__ import annotations

import numpy as np
import pytest

from fastcar.toolkit.numerics.silu import SILU_DEPTH, silu, silu_bytes


def exact(x: np.ndarray) -> np.ndarray:
    x = x.astype(np.float64)
    return x / (1 + np.exp(-np.maximum(x, -99)))


def test_depth_is_the_minimum():
    assert float(SILU_DEPTH) == pytest.approx(-exact(np.linspace(-1.3, -1.25, 100001)).min(), abs=2e-8)


def test_formula():
    x = np.linspace(-20, 20, 100001).astype(np.float32)
    np.testing.assert_allclose(silu(x), exact(x), atol=2e-3)


@pytest.mark.parametrize("size", [1e-6, 0.1, 1.0, 8.0, 300.0])
def test_bytes(size: float):
    """Half a step of the byte, and what the table of the sigmoid is off: 2^-8 of x where it is steepest."""
    x = (np.random.default_rng(0).normal(0, 1, (4, 9, 7)) * size).astype(np.float32)
    made = silu_bytes(x)
    found = (made.values.astype(np.int64) - made.zero_point) * float(made.scale)
    sigmoid = np.minimum(np.abs(x), 16) / 1024 + np.abs(x).max() / 32767
    assert (np.abs(found - exact(x)) <= 0.501 * made.scale + sigmoid).all()
    assert made.values.max() == 255 or size < 0.01, "the bytes are used up to the last"
    assert float(made.scale) == pytest.approx((max(exact(x.max()), 0) + float(SILU_DEPTH)) / 255, rel=5e-3)


def test_a_map_below_zero_keeps_its_resolution():
    x = np.linspace(-9, -0.1, 100).astype(np.float32).reshape(1, 10, 10)
    made = silu_bytes(x)
    assert made.zero_point == 255
    found = (made.values.astype(np.int64) - 255) * float(made.scale)
    assert np.abs(found - exact(x)).max() < 3e-3


def test_a_map_of_zeros_is_zero():
    made = silu_bytes(np.zeros((2, 3, 3), np.float32))
    assert (made.values == made.zero_point).all()
