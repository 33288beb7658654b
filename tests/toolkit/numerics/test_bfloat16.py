"""bfloat16 against ml_dtypes."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from fastcar.toolkit.numerics.bfloat16 import from_bfloat16, to_bfloat16

FINITE = np.array([bits for bits in range(1 << 16) if bits & 0x7F80 != 0x7F80], np.uint16)


def patterns(kind: str) -> np.ndarray:
    """Bits of finite binary32 values."""
    upper = FINITE.astype(np.uint32) << 16
    lower = {"exact": 0, "tie": 0x8000, "below tie": 0x7FFF, "above tie": 0x8001, "last": 0xFFFF}
    if kind in lower:
        return upper | np.uint32(lower[kind])
    return upper | np.random.default_rng(0).integers(0, 1 << 16, upper.size).astype(np.uint32)


@pytest.mark.parametrize("kind", ["exact", "tie", "below tie", "above tie", "last", "random"])
def test_rounding(kind):
    x = patterns(kind).view(np.float32)
    with np.errstate(over="ignore"):
        expected = x.astype(ml_dtypes.bfloat16).view(np.uint16)
    np.testing.assert_array_equal(to_bfloat16(x), expected)


def test_round_trip():
    np.testing.assert_array_equal(to_bfloat16(from_bfloat16(FINITE)), FINITE)
    np.testing.assert_array_equal(from_bfloat16(FINITE), FINITE.view(ml_dtypes.bfloat16).astype(np.float32))


def test_non_contiguous_input():
    x = np.random.default_rng(1).normal(size=(4, 6)).astype(np.float32)
    np.testing.assert_array_equal(to_bfloat16(x.T), x.T.astype(ml_dtypes.bfloat16).view(np.uint16))
