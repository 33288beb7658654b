"""Bilinear resizing of a map: four neighbours and fixed weights for each place."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["Corner", "bilinear", "corners"]


@dataclass(frozen=True)
class Corner:
    """``index`` (places',) int64 into the flattened map and ``weight`` (places',) float32 of one neighbour."""

    index: np.ndarray
    weight: np.ndarray


def corners(size: tuple[int, int], resized: tuple[int, int]) -> tuple[Corner, ...]:
    """The four neighbours of each place of the resized map, upper ones first, left ones first.

    Pixel centres are aligned, not corners, and what lies outside is the border: PyTorch's
    ``interpolate(mode="bilinear", align_corners=False)``.
    """
    (top, bottom), (left, right) = (_axis(*lengths) for lengths in zip(size, resized, strict=True))
    return tuple(
        Corner((row.index[:, None] * size[1] + column.index).ravel(), (row.weight[:, None] * column.weight).ravel())
        for row in (top, bottom)
        for column in (left, right)
    )


def bilinear(x: np.ndarray, resized: tuple[int, int]) -> np.ndarray:
    """x (channels, height, width) float32 -> (channels, *resized), the four products added in the order of corners."""
    flat = x.reshape(x.shape[0], -1)
    first, *others = corners(x.shape[1:], resized)
    total = flat[:, first.index] * first.weight
    for corner in others:
        total = total + flat[:, corner.index] * corner.weight
    return total.reshape(-1, *resized)


def _axis(length: int, resized: int) -> tuple[Corner, Corner]:
    """Lower and upper neighbour along one axis."""
    place = np.maximum((np.arange(resized) + 0.5) * length / resized - 0.5, 0.0)
    lower = np.floor(place).astype(np.int64)
    upper = np.minimum(lower + 1, length - 1)
    weight = (place - lower).astype(np.float32)
    return Corner(lower, np.float32(1) - weight), Corner(upper, weight)
