"""What a writer put on disk."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["VideoFile"]


@dataclass(frozen=True)
class VideoFile:
    """A finished file (or folder of frames).

    ``padding`` is what was added (below, at the right) in pixels of the written picture, (0, 0) when nothing was:
    the picture without it is ``height - padding[0]`` x ``width - padding[1]``.
    """

    path: Path
    frames: int
    height: int
    width: int
    padding: tuple[int, int] = (0, 0)
