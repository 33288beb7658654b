"""What a clip is to the writers, and the two changes of size they make."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

__all__ = ["check_frames", "check_rate", "pad_to_even", "upscaled"]


def check_frames(frames: np.ndarray) -> np.ndarray:
    """``frames`` itself when it is (frames, height, width, 3) uint8 with nothing empty; ValueError otherwise."""
    shape, kind = getattr(frames, "shape", None), getattr(frames, "dtype", None)
    found = f"{type(frames).__name__} of shape {shape} and type {kind}"
    if not isinstance(frames, np.ndarray) or frames.ndim != 4 or frames.shape[3] != 3 or frames.dtype != np.uint8:
        raise ValueError(f"video: {found}; expected an array (frames, height, width, 3) of uint8 RGB")
    if 0 in frames.shape:
        raise ValueError(f"video: {found}; expected at least one frame of at least one pixel")
    return frames


def check_rate(frames_per_second: float, highest: float = 240.0) -> Fraction:
    """The frame rate as an exact fraction; ValueError unless 0 < ``frames_per_second`` <= ``highest``."""
    if not 0 < frames_per_second <= highest:
        raise ValueError(f"video: {frames_per_second} frames per second; expected above 0 and up to {highest:g}")
    return Fraction(frames_per_second).limit_denominator(1001)


def upscaled(frames: np.ndarray, factor: int) -> np.ndarray:
    """Every pixel as a square of ``factor`` x ``factor``: (frames, h, w, 3) -> (frames, h factor, w factor, 3).

    Nearest neighbour, so that a tiny picture keeps its own pixels when a player enlarges it. ValueError on a factor
    that is not a positive integer.
    """
    if int(factor) != factor or factor < 1:
        raise ValueError(f"video: upscale {factor}; expected a positive integer")
    return frames.repeat(int(factor), axis=1).repeat(int(factor), axis=2) if factor > 1 else frames


def pad_to_even(frames: np.ndarray) -> tuple[np.ndarray, tuple[int, int]]:
    """Height and width made even by repeating the last line and column; the padding as (below, at the right).

    H.264 in yuv420p stores one colour sample for 2 x 2 pixels, and most players refuse odd sizes.
    """
    below, right = frames.shape[1] % 2, frames.shape[2] % 2
    if not (below or right):
        return frames, (0, 0)
    return np.pad(frames, ((0, 0), (0, below), (0, right), (0, 0)), mode="edge"), (below, right)
