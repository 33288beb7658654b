"""All frames of a clip on one sheet, each under its number."""

from __future__ import annotations

import math
import os
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from ..output import replacing
from .frames import check_frames, upscaled
from .record import VideoFile

__all__ = ["contact_sheet", "write_contact_sheet"]

PAPER, INK = (255, 255, 255), (82, 90, 104)


def write_contact_sheet(
    path: str | os.PathLike[str], frames: np.ndarray, columns: int | None = None, upscale: int = 2
) -> VideoFile:
    """Write :func:`contact_sheet` as a PNG; OutputError when the file cannot be written."""
    sheet = contact_sheet(frames, columns, upscale)
    with replacing(path) as partial:
        sheet.save(partial, "PNG", optimize=True)
    return VideoFile(Path(path), len(frames), sheet.height, sheet.width)


def contact_sheet(frames: np.ndarray, columns: int | None = None, upscale: int = 2) -> Image.Image:
    """``frames`` (frames, height, width, 3) uint8 RGB on a white grid, row by row, numbered from 0.

    ``columns`` defaults to 8 at most, with rows of equal length where the count allows. ValueError on a wrong array,
    upscale or number of columns.
    """
    pictures = upscaled(check_frames(frames), upscale)
    count, height, width = pictures.shape[:3]
    columns = _columns(count) if columns is None else columns
    if columns < 1:
        raise ValueError(f"contact sheet: {columns} columns; expected at least 1")
    gap, font_size = max(4, width // 24), min(22, max(11, width // 9))
    caption = font_size + gap
    font = ImageFont.load_default(size=font_size)
    rows = math.ceil(count / columns)
    size = (gap + columns * (width + gap), gap + rows * (height + caption + gap))
    sheet = Image.new("RGB", size, PAPER)
    draw = ImageDraw.Draw(sheet)
    for index, picture in enumerate(pictures):
        left, top = gap + index % columns * (width + gap), gap + index // columns * (height + caption + gap)
        draw.text((left + width / 2, top + caption / 2), str(index), INK, font, anchor="mm")
        sheet.paste(Image.fromarray(picture), (left, top + caption))
    return sheet


def _columns(count: int) -> int:
    """The fewest columns that keep the least number of rows of up to 8."""
    return math.ceil(count / math.ceil(count / 8))
