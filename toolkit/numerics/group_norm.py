"""GroupNorm of a map: integer sums of each group, then one multiplication and addition a value."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .linear import MAX_ABS_FLOOR

__all__ = ["MAX_GROUP", "VARIANCE_FLOOR", "GroupNorm", "group_norm"]

MAX_GROUP = 1 << 23  # values a group: their squares sum up to 2^53
VARIANCE_FLOOR = np.float32(2.0**-30)  # below it all values are equal: 0 / tiny then, instead of 0 / 0


@dataclass(frozen=True)
class GroupNorm:
    """``gain`` and ``bias`` (channels,) float32; ValueError if ``groups`` does not divide the channels."""

    gain: np.ndarray
    bias: np.ndarray
    groups: int = 32
    eps: float = 1e-6

    def __post_init__(self) -> None:
        if self.gain.size % self.groups:
            raise ValueError(f"{self.gain.size} channels; expected a multiple of the {self.groups} groups of the norm")


def group_norm(x: np.ndarray, norm: GroupNorm) -> np.ndarray:
    """x (channels, height, width) float32 -> (x - mean) / sqrt(variance + eps) * gain + bias (arXiv 1803.08494, eq. 1).

    Mean and variance are those of x rounded to int16 by the group's max|x|, the values themselves are not rounded:
    y = x * factor + offset, one of each a channel.

    Widths, up to n = 2^23 values a group: |integer| < 2^15, so |sum| < 2^38 and squares < 2^53: every partial sum is
    exact in int64 and in binary64, whichever a library adds in. With m the rounded mean, |m| <= 2^15 and m sum < 2^53:
    squares - m (2 sum - n m), n times the variance around m, is exact too.
    """
    rows = x.reshape(norm.groups, -1)
    step = np.maximum(np.abs(rows).max(axis=1), MAX_ABS_FLOOR) / np.float32(32767)
    integers = np.rint(rows / step[:, None]).astype(np.int64)
    count, n = rows.shape[1], np.float32(rows.shape[1])
    total, squares = integers.sum(axis=1), np.square(integers).sum(axis=1)

    mean = total.astype(np.float32) / n
    whole = np.rint(mean).astype(np.int64)
    rest = (total - count * whole).astype(np.float32) / n
    around = (squares - whole * (2 * total - count * whole)).astype(np.float32) / n
    variance = (around - rest * rest) + np.float32(norm.eps) / (step * step)
    deviation = np.sqrt(np.maximum(variance, VARIANCE_FLOOR)) * step

    factor = norm.gain.reshape(norm.groups, -1) / deviation[:, None]
    offset = norm.bias.reshape(norm.groups, -1) - (mean * step)[:, None] * factor
    return x * factor.reshape(-1, 1, 1) + offset.reshape(-1, 1, 1)
