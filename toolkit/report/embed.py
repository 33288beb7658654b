"""What the page carries inside itself: videos as base64, replay flags as bits, maps as tiny PNGs."""

from __future__ import annotations

import base64
import io

import numpy as np
from PIL import Image

from ..video.gif import gif_bytes
from ..video.mp4 import mp4_bytes
from .arrays import place_ratio
from .view import ReportFacts, RunView

__all__ = ["clip_media", "place_tiles", "player_data"]

SHOWN = 384  # pixels; about the size at which the page shows a frame
HOT = (232, 119, 34)  # the page's colour of replay


def clip_media(frames: np.ndarray, frames_per_second: float) -> dict[str, str]:
    """Data URIs of one clip (frames, height, width, 3): ``mp4``, and ``gif`` where no player is to be had."""
    factor = max(1, round(SHOWN / max(frames.shape[1:3])))
    return {
        "mp4": _data_uri("video/mp4", mp4_bytes(frames, frames_per_second, factor)),
        "gif": _data_uri("image/gif", gif_bytes(frames, min(frames_per_second, 50.0))),
    }


def place_tiles(run: RunView) -> list[str]:
    """One PNG a frame of the first clip: a pixel a place, the more opaque the more layers and rows replayed there."""
    tiles = []
    for share in place_ratio(run.generation, run.rows_of(0)):
        alpha = np.rint(255 * share).astype(np.uint8)
        pixels = np.dstack([np.broadcast_to(np.uint8(HOT), (*alpha.shape, 3)), alpha])
        buffer = io.BytesIO()
        Image.fromarray(np.ascontiguousarray(pixels)).save(buffer, "PNG")
        tiles.append(_data_uri("image/png", buffer.getvalue()))
    return tiles


def player_data(run: RunView, facts: ReportFacts) -> dict:
    """What the page's script reads. ``bits``: replay (frames, cells, layers, rows), 8 a byte, high bit first."""
    replay = run.generation.cell_replay
    return {
        "shape": list(replay.shape),
        "grid": list(run.generation.grid),
        "rows": [list(run.rows_of(clip)) for clip in range(run.clips)],
        "rate": facts.frames_per_second,
        "bits": base64.b64encode(np.packbits(replay)).decode("ascii"),
    }


def _data_uri(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode('ascii')}"
