"""H.264 in mp4, in the one arrangement that browsers, phones and slide programs all play."""

from __future__ import annotations

import os
import tempfile
from fractions import Fraction
from pathlib import Path

import numpy as np

from ..errors import OutputError
from ..output import replacing
from .frames import check_frames, check_rate, pad_to_even, upscaled
from .record import VideoFile
from .yuv import yuv420p

__all__ = ["mp4_bytes", "write_mp4"]

BT709 = 1  # code point of ITU-T H.273 for primaries, transfer and matrix
LIMITED_RANGE = 1  # "tv": luma 16 .. 235


def write_mp4(
    path: str | os.PathLike[str],
    frames: np.ndarray,
    frames_per_second: float = 8.0,
    upscale: int = 1,
    crf: int = 14,
) -> VideoFile:
    """Write ``frames`` (frames, height, width, 3) uint8 RGB as H.264, yuv420p, BT.709, index first (faststart).

    ``upscale`` enlarges by an integer, nearest neighbour, and thereby also spares small pictures the halved colour
    resolution of yuv420p. Odd sizes are padded; the padding is in the result and in the file's comment. ``crf`` is
    x264's constant quality, 0 (best) .. 51. The same frames give the same bytes. ValueError on a wrong array, rate,
    upscale or crf; OutputError when the file cannot be written.
    """
    rate = check_rate(frames_per_second)
    if not 0 <= crf <= 51:
        raise ValueError(f"video: crf {crf}; expected 0 .. 51")
    picture, padding = pad_to_even(upscaled(check_frames(frames), upscale))
    with replacing(path) as partial:
        try:
            _encode(partial, picture, rate, crf, _comment(frames, upscale, padding))
        except _encoder_errors() as error:
            if isinstance(error, OSError):
                raise
            fix = "Install a PyAV (package av) that has libx264."
            raise OutputError(path, f"the H.264 encoder failed: {error}", "PyAV with libx264", fix) from error
    return VideoFile(Path(path), *picture.shape[:3], padding)


def mp4_bytes(frames: np.ndarray, frames_per_second: float = 8.0, upscale: int = 1, crf: int = 14) -> bytes:
    """The content of the file :func:`write_mp4` writes, for embedding."""
    with tempfile.TemporaryDirectory(prefix="fastcar-") as folder:
        return write_mp4(Path(folder) / "clip.mp4", frames, frames_per_second, upscale, crf).path.read_bytes()


def _comment(frames: np.ndarray, upscale: int, padding: tuple[int, int]) -> str:
    height, width = frames.shape[1:3]
    return f"{height} x {width} pixels, upscale {upscale}, padding {padding[0]} below and {padding[1]} at the right"


def _encoder_errors() -> tuple[type[Exception], ...]:
    import av

    return av.error.FFmpegError, av.codec.codec.UnknownCodecError


def _encode(path: Path, frames: np.ndarray, rate: Fraction, crf: int, comment: str) -> None:
    """One stream without B-frames: every player starts it at time 0 and steps through it frame by frame."""
    import av  # here, so that a program that writes no video does not load the codecs

    with av.open(str(path), "w", format="mp4", options={"movflags": "+faststart", "fflags": "+bitexact"}) as container:
        container.metadata["comment"] = comment
        stream = container.add_stream("libx264", rate=rate)
        stream.height, stream.width = frames.shape[1:3]
        stream.pix_fmt, stream.options = "yuv420p", {"crf": str(crf), "bf": "0", "g": "8", "preset": "medium"}
        context = stream.codec_context
        context.thread_count = 1  # x264's output depends on its thread count
        context.color_primaries = context.color_trc = context.colorspace = BT709
        context.color_range = LIMITED_RANGE
        for index, array in enumerate(frames):
            frame = av.VideoFrame.from_ndarray(yuv420p(array), format="yuv420p")
            frame.pts, frame.time_base = index, 1 / rate
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
