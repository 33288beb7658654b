"""One picture of a run for a README: frames of both runs, and below them what was replayed, in the same columns."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from ..output import replacing
from .arrays import frame_layer_ratio, place_ratio
from .summary import summary, summary_table
from .view import RunView, check_comparable

__all__ = ["replay_map_picture"]

PAPER, INK, SOFT, CELL, HOT = (255, 255, 255), (26, 33, 48), (93, 103, 121), (233, 236, 242), (232, 119, 34)
MARGIN, GUTTER, GAP = 36, 150, 12  # pixels; the gutter holds the names of the rows
HEADLINE = {
    "eligible_replay_ratio": "{} of eligible MLPs replayed",
    "eligible_speed_up": "{} the speed after frame 0",
    "psnr_db": "PSNR {}",
    "ssim": "SSIM {}",
}


@dataclass(frozen=True)
class _Columns:
    """Where the shown frames are: ``size`` = (height, width) of a column's picture, in pixels."""

    frames: tuple[int, ...]
    every: int
    size: tuple[int, int]

    def left(self, column: float) -> float:
        return MARGIN + GUTTER + column * (self.size[1] + GAP)

    @property
    def width(self) -> int:
        return int(self.left(len(self.frames))) - GAP + MARGIN


def replay_map_picture(
    path: str | os.PathLike[str], replay: RunView, dense: RunView | None = None, clip: int = 0, every: int = 2
) -> Path:
    """Write a PNG of ``clip``: every ``every``-th frame of both runs, its replayed places, and the map over layers.

    Rows from the top: dense frames (when there are any), replay frames, places of those frames (the stronger the
    colour, the more layers and rows replayed there), and frames x layers, each column holding its ``every`` frames.
    ValueError on an ``every`` below 1 or a clip that is not there; OutputError when the file cannot be written.
    """
    check_comparable(replay, dense)
    if every < 1 or not 0 <= clip < replay.clips:
        raise ValueError(f"picture: every {every}, clip {clip}; expected at least 1, and a clip below {replay.clips}")
    picture = _draw(replay, dense, clip, _columns(replay, every))
    with replacing(path) as partial:
        picture.save(partial, "PNG", optimize=True)
    return Path(path)


def _columns(run: RunView, every: int) -> _Columns:
    """Frames at an integer scale that fills about 1500 pixels, at most 320 pixels high."""
    height, width = run.frames.shape[2:4]
    frames = tuple(range(0, run.frame_count, every))
    scale = max(1, min(1500 // (len(frames) * width), 320 // height))
    return _Columns(frames, every, (height * scale, width * scale))


def _draw(replay: RunView, dense: RunView | None, clip: int, columns: _Columns) -> Image.Image:
    bands = {"dense": dense, "replay": replay} if dense else {"replay": replay}
    cell_height = max(8, min(26, 260 // replay.layers))
    top = MARGIN + 104
    height = top + (len(bands) + 1) * (columns.size[0] + GAP) + GAP + replay.layers * cell_height + 64 + MARGIN
    width = max(columns.width, 900)
    picture = Image.new("RGB", (width, height), PAPER)
    draw = ImageDraw.Draw(picture)
    _heading(draw, replay, dense, clip, width)
    for column, frame in enumerate(columns.frames):
        _text(draw, columns.left(column) + columns.size[1] / 2, top - 14, str(frame), 20, SOFT, "mm")
    _text(draw, MARGIN, top - 14, "frame", 20, SOFT, "lm")
    for name, view in bands.items():
        _band(picture, columns, top, [view.frames[clip, frame] for frame in columns.frames])
        _text(draw, MARGIN, top + columns.size[0] / 2, name, 24, INK, "lm")
        top += columns.size[0] + GAP
    share = place_ratio(replay.generation, replay.rows_of(clip))
    _band(picture, columns, top, [_tinted(share[frame]) for frame in columns.frames])
    _text(draw, MARGIN, top + columns.size[0] / 2, "replayed\nplaces", 24, INK, "lm")
    top += columns.size[0] + 2 * GAP
    _layer_map(draw, columns, top, cell_height, frame_layer_ratio(replay.generation))
    _legend(draw, columns, top + replay.layers * cell_height + 22)
    return picture


def _heading(draw: ImageDraw.ImageDraw, replay: RunView, dense: RunView | None, clip: int, width: int) -> None:
    """The prompt, cut to the width, and the headline numbers under it."""
    prompt = " ".join(replay.generation.prompts[clip].split())
    font = ImageFont.load_default(size=36)
    while len(prompt) > 1 and font.getlength(prompt) > width - 2 * MARGIN:
        prompt = prompt[:-2].rstrip() + "…"
    _text(draw, MARGIN, MARGIN + 12, prompt, 36, INK, "lm")
    numbers = summary(replay, dense)
    texts = ((form, summary_table(numbers, [key])) for key, form in HEADLINE.items())
    line = "   ·   ".join(form.format(table[0][1]) for form, table in texts if table)
    _text(draw, MARGIN, MARGIN + 54, line, 22, SOFT, "lm")


def _band(picture: Image.Image, columns: _Columns, top: float, pixels: list[np.ndarray]) -> None:
    """One array of pixels a column, each enlarged to the size of a frame."""
    height, width = columns.size
    for column, array in enumerate(pixels):
        enlarged = Image.fromarray(array).resize((width, height), Image.Resampling.NEAREST)
        picture.paste(enlarged, (int(columns.left(column)), int(top)))


def _layer_map(draw: ImageDraw.ImageDraw, columns: _Columns, top: float, cell: int, ratios: np.ndarray) -> None:
    """Cells of (frames, layers): the frames between two shown ones share the column of the first."""
    frames, layers = ratios.shape
    width = columns.size[1] / columns.every
    for frame, layer in np.ndindex(frames, layers):
        left = columns.left(frame // columns.every) + frame % columns.every * width
        box = (left, top + layer * cell, left + width - 2, top + (layer + 1) * cell - 2)
        draw.rectangle(box, fill=tuple(_tinted(ratios[frame, layer]).tolist()))
    every = -(-20 // cell)
    for layer in range(0, layers, every):
        right = columns.left(0) - 10
        _text(draw, right, top + (layer + 0.5) * cell - 1, str(layer), min(18, max(cell - 2, 14)), SOFT, "rm")
    _text(draw, MARGIN, top + layers * cell / 2, "layers", 24, INK, "lm")


def _legend(draw: ImageDraw.ImageDraw, columns: _Columns, top: float) -> None:
    left = columns.left(0)
    for index, colour in enumerate(_tinted(np.linspace(0, 1, 160)).tolist()):
        draw.rectangle((left + index, top, left + index, top + 16), fill=tuple(colour))
    names = "0 % to 100 % replayed: of layers and rows at a place, and of places and rows in a layer"
    _text(draw, left + 172, top + 8, names, 18, SOFT, "lm")


def _tinted(share: np.ndarray) -> np.ndarray:
    """Shares (...) of 0 .. 1 -> colours (..., 3) uint8 between the empty cell and the full one."""
    mixed = np.asarray(share)[..., None] * (np.array(HOT) - CELL) + CELL
    return np.rint(mixed).astype(np.uint8)


def _text(
    draw: ImageDraw.ImageDraw, x: float, y: float, text: str, size: int, colour: tuple[int, int, int], anchor: str
) -> None:
    font = ImageFont.load_default(size=size)
    if "\n" in text:
        lines = text.split("\n")
        for index, line in enumerate(lines):
            draw.text((x, y + (index - (len(lines) - 1) / 2) * size * 1.2), line, colour, font, anchor=anchor)
    else:
        draw.text((x, y), text, colour, font, anchor=anchor)
