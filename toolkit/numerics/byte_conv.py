"""Convolutions of one map over bytes: the accumulator is an integer, so no library's order of summing counts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .linear import MAX_ABS_FLOOR

__all__ = ["ByteConv", "ByteMap", "conv_bytes", "conv_words", "map_step"]

WORD_ZERO = 32768  # of a 16-bit map; its high byte is 128, its low byte 0


@dataclass(frozen=True)
class ByteConv:
    """``weight`` (out, in, k, k) int8, k odd, zero padding; ``scale`` and ``bias`` (out,) float32.

    The accumulator is int32: |value - zero_point| <= 255 and |weight| <= 128, so in * k^2 < 65793. Libraries that add
    zero_point * weight separately wrap on the way, modulo 2^32, which does not touch the result. ValueError beyond it.
    """

    weight: np.ndarray
    scale: np.ndarray
    bias: np.ndarray

    def __post_init__(self) -> None:
        if self.weight.ndim != 4 or self.weight.shape[2] != self.weight.shape[3] or not self.weight.shape[2] % 2:
            raise ValueError(f"a kernel of shape {self.weight.shape}; expected (out, in, k, k) with k odd")
        products = self.weight[0].size
        if products >= (1 << 31) // (255 * 128):
            raise ValueError(f"{products} products a sum; expected fewer than 65793, or 32 bits do not hold it")

    @property
    def inputs(self) -> int:
        return self.weight.shape[1]

    @property
    def outputs(self) -> int:
        return self.weight.shape[0]


@dataclass(frozen=True)
class ByteMap:
    """x is about (values - zero_point) * scale: ``values`` (channels, height, width) uint8."""

    values: np.ndarray
    zero_point: int
    scale: np.float32


def conv_bytes(x: ByteMap, conv: ByteConv) -> np.ndarray:
    """(channels, height, width) -> (out, height, width) float32: sum * (weight scale * map scale) + bias."""
    total = _accumulate(x.values.astype(np.int64) - x.zero_point, conv.weight)
    return total.astype(np.float32) * _channels(conv.scale * x.scale) + _channels(conv.bias)


def conv_words(x: np.ndarray, conv: ByteConv) -> np.ndarray:
    """x (channels, height, width) float32 -> the same for a map of 16 bits.

    For maps that no SiLU bounds: the residual stream has outliers, and 8 bits of it would be seen in the picture.
    High and low bytes go through the weights one after the other and meet in binary32, high * 256 + low.
    """
    step = map_step(x)
    words = np.rint(x / step).astype(np.int64) + WORD_ZERO
    high = _accumulate((words >> 8) - (WORD_ZERO >> 8), conv.weight).astype(np.float32)
    low = _accumulate(words & 255, conv.weight).astype(np.float32)
    return (high * np.float32(256) + low) * _channels(conv.scale * step) + _channels(conv.bias)


def map_step(x: np.ndarray) -> np.float32:
    """max|x| / 32767 over the whole map; the maximum is at least ``MAX_ABS_FLOOR``."""
    return np.maximum(np.abs(x).max(), MAX_ABS_FLOOR) / np.float32(32767)


def _accumulate(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Integers (in, height, width) -> (out, height, width) int64; summed in binary64, where they are exact."""
    outputs, _, kernel, _ = weight.shape
    pad, (_, height, width) = kernel // 2, x.shape
    padded = np.pad(x, ((0, 0), (pad, pad), (pad, pad))).astype(np.float64)
    taps = weight.astype(np.float64)
    total = np.zeros((outputs, height, width))
    for row in range(kernel):
        for column in range(kernel):
            window = padded[:, row : row + height, column : column + width]
            total += np.tensordot(taps[:, :, row, column], window, axes=1)
    return total.astype(np.int64)


def _channels(x: np.ndarray) -> np.ndarray:
    return x[:, None, None]
