"""Integer convolutions against PyTorch's in binary64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from fastcar.toolkit.numerics.byte_conv import ByteConv, ByteMap, conv_bytes, conv_words


def random_conv(rng: np.random.Generator, inputs: int, outputs: int, kernel: int) -> ByteConv:
    weight = rng.integers(-128, 128, (outputs, inputs, kernel, kernel)).astype(np.int8)
    scale, bias = rng.uniform(0.5, 1.5, outputs) / 1000, rng.normal(0, 1, outputs)
    return ByteConv(weight, scale.astype(np.float32), bias.astype(np.float32))


def torch_conv(x: np.ndarray, conv: ByteConv) -> np.ndarray:
    weight = torch.from_numpy(conv.weight * conv.scale[:, None, None, None].astype(np.float64))
    bias = torch.from_numpy(conv.bias.astype(np.float64))
    return F.conv2d(torch.from_numpy(x)[None], weight, bias, padding=conv.weight.shape[2] // 2)[0].numpy()


@pytest.mark.parametrize("kernel", [1, 3, 5])
@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 4, 7), (40, 5, 2)])
def test_bytes(kernel: int, shape: tuple[int, int, int]):
    """Padding is zero, so the zero point, not the byte 0."""
    rng = np.random.default_rng(kernel)
    conv = random_conv(rng, shape[0], 6, kernel)
    x = ByteMap(rng.integers(0, 256, shape).astype(np.uint8), 14, np.float32(0.03))
    expected = torch_conv((x.values - 14.0) * float(x.scale), conv)
    np.testing.assert_allclose(conv_bytes(x, conv), expected, rtol=1e-6, atol=3e-7 * np.abs(expected).max())


@pytest.mark.parametrize("kernel", [1, 3])
@pytest.mark.parametrize("size", [1e-20, 1.0, 1e20])
def test_words(kernel: int, size: float):
    """Each value moves by half a step of 16 bits: a sum by half a step of all its weights."""
    rng = np.random.default_rng(kernel)
    conv = random_conv(rng, 24, 5, kernel)
    x = (rng.standard_t(2, (24, 6, 5)) * size).astype(np.float32)
    step = np.abs(x).max() / 32767.0
    reach = np.abs(conv.weight.astype(np.float64)).sum(axis=(1, 2, 3)) * conv.scale
    difference = np.abs(conv_words(x, conv) - torch_conv(x.astype(np.float64), conv))
    assert (
        difference <= (0.5001 * step * reach + 1e-5 * np.abs(x).max() * reach.max() / 127)[:, None, None] + 1e-6
    ).all()


def test_a_map_of_zeros_leaves_the_bias():
    conv = random_conv(np.random.default_rng(0), 3, 4, 3)
    np.testing.assert_array_equal(
        conv_words(np.zeros((3, 2, 2), np.float32), conv), np.tile(conv.bias[:, None, None], (1, 2, 2))
    )


def test_the_largest_sums_are_exact():
    """65792 products of 255 and -128: next to the end of 32 bits, in Python's integers."""
    weight = np.full((1, 65792, 1, 1), -128, np.int8)
    conv = ByteConv(weight, np.ones(1, np.float32), np.zeros(1, np.float32))
    x = ByteMap(np.full((65792, 1, 1), 255, np.uint8), 0, np.float32(1))
    exact = -128 * 255 * 65792
    assert -(2**31) < exact and conv_bytes(x, conv).item() == np.float32(exact)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((1, 65793, 1, 1), "65793 products"),
        ((1, 2, 3, 1), "kernel of shape"),
        ((1, 2, 2, 2), "k odd"),
        ((4, 4), "kernel"),
    ],
)
def test_what_cannot_be_summed_is_refused(shape: tuple[int, ...], message: str):
    with pytest.raises(ValueError, match=message):
        ByteConv(np.zeros(shape, np.int8), np.ones(shape[0], np.float32), np.zeros(shape[0], np.float32))
