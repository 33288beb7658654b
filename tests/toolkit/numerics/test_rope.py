"""Rotary embedding as multiplication of complex numbers."""

from __future__ import annotations

import cmath

import numpy as np
import pytest
from random_models import config

from fastcar.toolkit.numerics.rope import rotary_tables, rotate

POSITIONS = (0, 1, 63, 64, 700, 1999)


@pytest.mark.parametrize(("head_dim", "theta"), [(10, 10000.0), (32, 10000.0), (2, 500000.0)])
def test_rotation(head_dim, theta):
    shape = config(head_dim=head_dim).model_copy(update={"rope_theta": theta})
    cos, sin = rotary_tables(shape, 2000)
    x = np.random.default_rng(0).normal(size=(len(POSITIONS), 3, head_dim)).astype(np.float32)
    turned = rotate(x, cos[list(POSITIONS)], sin[list(POSITIONS)])
    assert turned.dtype == np.float32
    half = head_dim // 2
    for row, position in enumerate(POSITIONS):
        for head in range(3):
            for pair in range(half):
                z = complex(x[row, head, pair], x[row, head, pair + half])
                z *= cmath.exp(1j * position * theta ** (-2 * pair / head_dim))
                found = complex(turned[row, head, pair], turned[row, head, pair + half])
                assert abs(found - z) <= 3e-7 * abs(z)


def test_products_depend_on_the_distance_only():
    shape = config(head_dim=16)
    cos, sin = (table.astype(np.float64) for table in rotary_tables(shape, 300))
    q, k = np.random.default_rng(1).normal(size=(2, 1, 1, 16))
    dots = [(rotate(q, cos[[p]], sin[[p]]) * rotate(k, cos[[p - 64]], sin[[p - 64]])).sum() for p in (64, 65, 200, 299)]
    assert np.ptp(dots) < 1e-5
