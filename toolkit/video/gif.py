"""Animated GIF with one palette for the whole clip: colours that hold still do not flicker."""

from __future__ import annotations

import io
import os
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import numpy as np
from PIL import Image

from ..output import replacing
from .frames import check_frames, check_rate, upscaled
from .record import VideoFile

__all__ = ["gif_bytes", "write_gif"]

FASTEST = 50.0  # frames per second; viewers slow anything faster down to 10


def write_gif(
    path: str | os.PathLike[str], frames: np.ndarray, frames_per_second: float = 8.0, upscale: int = 1
) -> VideoFile:
    """Write ``frames`` (frames, height, width, 3) uint8 RGB as a GIF that loops for ever.

    256 colours, no dithering. GIF counts time in 1/100 s; delays are rounded so that the clip as a whole keeps its
    length. Successive equal frames share one picture with the sum of their delays. ValueError on a wrong array, rate
    or upscale; OutputError when the file cannot be written.
    """
    content = gif_bytes(frames, frames_per_second, upscale)
    with replacing(path) as partial:
        partial.write_bytes(content)
    count, height, width = frames.shape[:3]
    return VideoFile(Path(path), count, height * int(upscale), width * int(upscale))


def gif_bytes(frames: np.ndarray, frames_per_second: float = 8.0, upscale: int = 1) -> bytes:
    """The content of the file :func:`write_gif` writes, for embedding."""
    rate = check_rate(frames_per_second, FASTEST)
    check_frames(frames)
    palette = _shared_palette(frames)
    quantized = [Image.fromarray(frame).quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    indices = upscaled(np.stack([np.asarray(picture)[..., None] for picture in quantized]), upscale)
    pictures = [_indexed(plane[..., 0], palette) for plane in indices]
    buffer = io.BytesIO()
    pictures[0].save(
        buffer, "GIF", save_all=True, append_images=pictures[1:], duration=_delays_ms(len(frames), rate), loop=0
    )
    return buffer.getvalue()


def _shared_palette(frames: np.ndarray) -> Image.Image:
    """A palette of 256 colours for all frames, by median cut over the clip laid out as one tall picture."""
    return Image.fromarray(frames.reshape(-1, frames.shape[2], 3)).quantize(256, method=Image.Quantize.MEDIANCUT)


def _indexed(indices: np.ndarray, palette: Image.Image) -> Image.Image:
    picture = Image.fromarray(indices, mode="P")
    picture.putpalette(palette.getpalette())
    return picture


def _delays_ms(count: int, rate: Fraction) -> list[int]:
    """Delay of each frame in ms, multiples of 10 whose running sum is never more than 5 ms off."""
    ends = [round(100 * index / rate) for index in range(count + 1)]
    return [10 * (end - start) for start, end in pairwise(ends)]
