"""Bilinear resizing against PyTorch's."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from fastcar.toolkit.numerics.bilinear import bilinear, corners

SIZES = [
    ((16, 16), (27, 27)),
    ((27, 27), (24, 24)),
    ((3, 5), (7, 2)),
    ((1, 1), (4, 3)),
    ((6, 1), (1, 6)),
    ((4, 4), (8, 8)),
]


@pytest.mark.parametrize(("size", "resized"), SIZES)
def test_pytorch(size: tuple[int, int], resized: tuple[int, int]):
    x = np.random.default_rng(0).normal(0, 1, (3, *size)).astype(np.float32)
    expected = F.interpolate(torch.from_numpy(x)[None], resized, mode="bilinear", align_corners=False)[0].numpy()
    np.testing.assert_allclose(bilinear(x, resized), expected, atol=2e-5)  # its coordinates are binary32


@pytest.mark.parametrize(("size", "resized"), SIZES)
def test_weights_share_the_whole(size: tuple[int, int], resized: tuple[int, int]):
    made = corners(size, resized)
    np.testing.assert_allclose(sum(corner.weight for corner in made), 1, atol=1e-6)
    assert all(0 <= corner.index.min() and corner.index.max() < size[0] * size[1] for corner in made)


def test_the_same_size_changes_no_bit():
    x = np.random.default_rng(0).normal(0, 1, (3, 5, 4)).astype(np.float32)
    np.testing.assert_array_equal(bilinear(x, (5, 4)), x)
