"""Attention over the places of a map against PyTorch's."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from fastcar.toolkit.numerics.map_attention import MAX_PLACES, map_attention


def rounded(x: np.ndarray) -> np.ndarray:
    """To int8 by max-abs: what is left is the softmax."""
    scale = np.abs(x).max() / 127
    return (np.rint(x / scale) * scale).astype(np.float64)


@pytest.mark.parametrize("shape", [(1, 1, 1), (7, 3, 5), (64, 8, 8), (16, 32, 33)])
@pytest.mark.parametrize("sharpness", [0.3, 3.0])
def test_pytorch(shape: tuple[int, int, int], sharpness: float):
    """Weights are floored to 2^-15 of the largest: half of that a place is missing in a sum of 1 or more."""
    rng = np.random.default_rng(0)
    q, k, v = (rng.normal(0, 1, (3, *shape)) * np.array([sharpness, 1, 1])[:, None, None, None]).astype(np.float32)
    places = lambda x: torch.from_numpy(rounded(x)).flatten(1).T[None]
    expected = F.scaled_dot_product_attention(places(q), places(k), places(v))[0].T.reshape(shape).numpy()
    np.testing.assert_allclose(map_attention(q, k, v), expected, atol=5e-3 * np.abs(v).max())


def test_each_place_finds_its_own():
    """Keys far apart: the value of the place whose key is the query, whichever way the map is numbered."""
    k = 40 * np.eye(6, dtype=np.float32).reshape(6, 2, 3)
    v = np.random.default_rng(0).normal(0, 1, (6, 2, 3)).astype(np.float32)
    order = [3, 1, 5, 0, 4, 2]
    q = np.ascontiguousarray(k.reshape(6, 6)[:, order]).reshape(6, 2, 3)
    found = map_attention(q, k, v).reshape(6, 6)
    np.testing.assert_allclose(found, rounded(v).reshape(6, 6)[:, order], atol=1e-6)


def test_more_places_than_sums_hold_are_refused():
    wide = np.zeros((1, 1, MAX_PLACES + 1), np.float32)
    with pytest.raises(ValueError, match="65536 places; expected at most 65535"):
        map_attention(wide, wide, wide)
