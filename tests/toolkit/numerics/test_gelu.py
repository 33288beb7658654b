"""GELU from the table against math.erf."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fastcar.toolkit.numerics.gelu import gelu


def gelu_in_python(x: float) -> float:
    return x / 2 * math.erfc(-x / math.sqrt(2))


@pytest.mark.parametrize("spread", [1e-6, 0.5, 3, 10])
def test_formula(spread):
    """Phi is within 2^-17 of its value at a middle at most 8 indices, 2^-8, away; its slope is at most 0.4."""
    x = np.random.default_rng(0).normal(0, spread, (8, 5000)).astype(np.float32)
    found, exact = gelu(x), np.vectorize(gelu_in_python)(x.astype(np.float64))
    assert found.dtype == np.float32 and found.shape == x.shape
    assert (np.abs(found - exact) <= (2**-17 + 0.4 * 2**-8) * np.abs(x) + 1e-7 * np.abs(exact)).all()


def test_absolute_error():
    """Largest where |x| times the slope of Phi is, at |x| = 1: 2^-8 * 0.242, and half a unit of 2^-16 times |x|."""
    x = np.linspace(-8, 8, 300_001).astype(np.float32)
    error = np.abs(gelu(x) - np.vectorize(gelu_in_python)(x.astype(np.float64)))
    assert error.max() <= 2**-8 * 0.245 + 8 * 2**-16


def test_far_out():
    """The identity up to the last unit of the table, and zero."""
    x = np.array([7, 16, 1e4, 3e30, -7, -16, -1e4, -3e30], np.float32)
    found = gelu(x)
    np.testing.assert_array_equal(found[:4], x[:4] * np.float32(65535 / 65536))
    assert not found[4:].any()


def test_zero_is_zero():
    assert not gelu(np.array([0.0, -0.0], np.float32)).any()
