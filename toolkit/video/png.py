"""A folder with one PNG a frame, for those who want the exact pixels."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
from PIL import Image

from ..errors import OutputError
from ..output import replacing
from .frames import check_frames, upscaled
from .record import VideoFile

__all__ = ["write_png_frames"]

NAME = re.compile(r"frame-\d+\.png")


def write_png_frames(folder: str | os.PathLike[str], frames: np.ndarray, upscale: int = 1) -> VideoFile:
    """Write ``frames`` (frames, height, width, 3) uint8 RGB as ``folder/frame-000.png`` and so on, lossless.

    The folder appears when all frames are written. A folder of earlier frames is replaced; one that holds anything
    else is refused. ValueError on a wrong array or upscale; OutputError when the folder cannot be written.
    """
    folder = Path(folder)
    pictures = upscaled(check_frames(frames), upscale)
    _check_replaceable(folder)
    with replacing(folder) as partial:
        partial.mkdir()
        for index, picture in enumerate(pictures):
            Image.fromarray(picture).save(partial / f"frame-{index:03d}.png")
        for earlier in folder.iterdir() if folder.exists() else ():
            earlier.unlink()
    return VideoFile(folder, *pictures.shape[:3])


def _check_replaceable(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise OutputError(folder, "it is a file", "a folder of frames or a new name", "Choose another name.")
    foreign = [entry.name for entry in folder.iterdir() if not NAME.fullmatch(entry.name)] if folder.exists() else []
    if foreign:
        raise OutputError(folder, f"holds {foreign[0]!r}", "nothing but earlier frames", "Choose another folder.")
