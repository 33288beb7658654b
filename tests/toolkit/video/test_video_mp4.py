"""The mp4 writer: what a decoder gets back, and that it is the arrangement players need."""

from __future__ import annotations

import resource

import av
import numpy as np
import pytest

from fastcar.toolkit.errors import OutputError
from fastcar.toolkit.video import mp4_bytes, pad_to_even, upscaled, write_mp4
from fastcar.toolkit.video.yuv import yuv420p


def blocks(frames: int, height: int, width: int, seed: int = 0) -> np.ndarray:
    """Random colours in squares of 4 x 4 pixels, cut to size."""
    small = np.random.default_rng(seed).integers(0, 256, (frames, -(-height // 4), -(-width // 4), 3), dtype=np.uint8)
    return upscaled(small, 4)[:, :height, :width]


def decoded(path) -> tuple[np.ndarray, av.VideoStream]:
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
        return np.stack(frames), stream


@pytest.mark.parametrize(
    "frames, height, width, upscale", [(16, 64, 64, 1), (5, 33, 27, 3), (1, 7, 8, 2), (3, 5, 5, 1)]
)
def test_decodes_to_the_same_frames(tmp_path, frames, height, width, upscale):
    clip = blocks(frames, height, width)
    file = write_mp4(tmp_path / "clip.mp4", clip, 8, upscale)
    pixels, _ = decoded(file.path)
    expected = upscaled(clip, upscale)
    below, right = file.padding
    assert pixels.shape == (frames, file.height, file.width, 3) and file.frames == frames
    assert file.height % 2 == 0 and file.width % 2 == 0
    assert (below, right) == (height * upscale % 2, width * upscale % 2)
    kept = pixels[:, : file.height - below, : file.width - right]
    assert kept.shape == expected.shape
    assert np.abs(kept.astype(int) - expected).mean() < 4


def test_is_what_every_player_takes(tmp_path):
    file = write_mp4(tmp_path / "clip.mp4", blocks(6, 31, 32), 12.5)
    content = file.path.read_bytes()
    assert content.index(b"moov") < content.index(b"mdat"), "the index must come first"
    with av.open(str(file.path)) as container:
        stream = container.streams.video[0]
        assert (stream.codec_context.name, stream.codec_context.pix_fmt) == ("h264", "yuv420p")
        assert float(stream.average_rate) == 12.5
        assert container.metadata["comment"] == "31 x 32 pixels, upscale 1, padding 1 below and 0 at the right"
        times = [float(frame.pts * frame.time_base) for frame in container.decode(video=0)]
        assert stream.codec_context.colorspace == 1 and stream.codec_context.color_range == 1
    assert times == pytest.approx(np.arange(6) / 12.5)


def test_padding_repeats_the_edge():
    padded, padding = pad_to_even(blocks(2, 3, 5))
    assert padding == (1, 1) and padded.shape == (2, 4, 6, 3)
    assert np.array_equal(padded[:, 3], padded[:, 2]) and np.array_equal(padded[:, :, 5], padded[:, :, 4])


# Code values of 100 % colour bars, ITU-R BT.709, 8 bits.
@pytest.mark.parametrize(
    "colour, expected",
    [
        ((255, 255, 255), (235, 128, 128)),
        ((0, 0, 0), (16, 128, 128)),
        ((255, 0, 0), (63, 102, 240)),
        ((0, 255, 0), (173, 42, 26)),
        ((0, 0, 255), (32, 240, 118)),
    ],
)
def test_colours_are_those_of_bt709(colour, expected):
    planes = yuv420p(np.full((4, 6, 3), colour, np.uint8))
    assert planes.shape == (6, 6)
    luma, chroma = planes[:4], planes[4:].ravel()
    assert (set(luma.ravel()), set(chroma[:6]), set(chroma[6:])) == tuple({value} for value in expected)


def test_same_frames_same_bytes():
    clip = blocks(8, 32, 32)
    assert mp4_bytes(clip) == mp4_bytes(clip)
    assert mp4_bytes(clip) != mp4_bytes(clip[::-1])


@pytest.mark.parametrize(
    "frames",
    [
        np.zeros((0, 8, 8, 3), np.uint8),
        np.zeros((2, 8, 8), np.uint8),
        np.zeros((2, 8, 8, 4), np.uint8),
        np.zeros((2, 8, 8, 3), np.float32),
        [[1, 2], [3, 4]],
    ],
)
def test_wrong_frames_are_refused_and_leave_nothing(tmp_path, frames):
    with pytest.raises(ValueError, match="video: "):
        write_mp4(tmp_path / "clip.mp4", frames)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "options", [{"frames_per_second": 0}, {"frames_per_second": float("nan")}, {"upscale": 0}, {"crf": 52}]
)
def test_wrong_options_are_refused(tmp_path, options):
    with pytest.raises(ValueError, match="video: "):
        write_mp4(tmp_path / "clip.mp4", blocks(2, 8, 8), **options)
    assert list(tmp_path.iterdir()) == []


def test_a_write_that_fails_halfway_leaves_the_earlier_file(tmp_path):
    path = tmp_path / "clip.mp4"
    write_mp4(path, blocks(1, 8, 8))
    earlier = path.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(OutputError, match="clip.mp4"):
            write_mp4(path, np.random.default_rng(0).integers(0, 256, (8, 64, 64, 3), dtype=np.uint8), crf=0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_bytes() == earlier
    assert [entry.name for entry in tmp_path.iterdir()] == ["clip.mp4"]
