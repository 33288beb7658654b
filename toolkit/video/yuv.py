"""RGB to the yuv420p of H.264, computed here so that no library version changes the colours."""

from __future__ import annotations

import numpy as np

__all__ = ["yuv420p"]

KR, KB = 0.2126, 0.0722  # luma weights of red and blue, ITU-R BT.709


def yuv420p(picture: np.ndarray) -> np.ndarray:
    """Planes of one picture (height, width, 3) uint8 RGB, both even -> (height 3/2, width) uint8, Y then U then V.

    ITU-R BT.709 in limited range: Y' = 16 + 219 (KR R + KG G + KB B) / 255, and Cb, Cr = 128 + 224 (B - Y, R - Y) /
    (2 (1 - KB or KR)) / 255, one sample for 2 x 2 pixels, their mean. Half values round to even.
    """
    height, width = picture.shape[:2]
    red, green, blue = np.moveaxis(picture.astype(np.float32) / 255, 2, 0)
    luma = KR * red + (1 - KR - KB) * green + KB * blue
    chroma = [128 + 224 * _halved(colour - luma) / (2 * (1 - weight)) for colour, weight in ((blue, KB), (red, KR))]
    planes = np.concatenate([(16 + 219 * luma).ravel(), chroma[0].ravel(), chroma[1].ravel()])
    return np.rint(planes).astype(np.uint8).reshape(height * 3 // 2, width)


def _halved(plane: np.ndarray) -> np.ndarray:
    height, width = plane.shape
    return plane.reshape(height // 2, 2, width // 2, 2).mean(axis=(1, 3))
