"""Frames to files that play everywhere: mp4, GIF, PNG contact sheet, PNG frames; each complete or absent."""

from __future__ import annotations

from .contact_sheet import contact_sheet, write_contact_sheet
from .frames import check_frames, pad_to_even, upscaled
from .gif import gif_bytes, write_gif
from .mp4 import mp4_bytes, write_mp4
from .png import write_png_frames
from .record import VideoFile

__all__ = [
    "VideoFile",
    "check_frames",
    "contact_sheet",
    "gif_bytes",
    "mp4_bytes",
    "pad_to_even",
    "upscaled",
    "write_contact_sheet",
    "write_gif",
    "write_mp4",
    "write_png_frames",
]
