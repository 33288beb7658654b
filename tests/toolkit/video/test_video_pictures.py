"""GIF, contact sheet and PNG frames."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image, ImageSequence

from fastcar.toolkit.errors import OutputError
from fastcar.toolkit.video import contact_sheet, write_contact_sheet, write_gif, write_png_frames

FRAMES = np.random.default_rng(1).integers(0, 256, (5, 6, 9, 3), dtype=np.uint8)


def few_colours(frames: int) -> np.ndarray:
    """A bright square that moves over a dark ground."""
    clip = np.full((frames, 12, 12, 3), (20, 30, 40), np.uint8)
    for index in range(frames):
        clip[index, 2:6, index % 8 : index % 8 + 4] = (250, 180, 10)
    return clip


@pytest.mark.parametrize("rate", [8.0, 24.0, 3.3])
def test_gif_plays_all_frames_for_the_length_of_the_clip(tmp_path, rate):
    clip = few_colours(7)
    file = write_gif(tmp_path / "clip.gif", clip, rate, upscale=3)
    with Image.open(file.path) as picture:
        assert picture.size == (36, 36) == (file.width, file.height)
        assert picture.info["loop"] == 0 and picture.n_frames == 7
        delays, pictures = [], []
        for frame in ImageSequence.Iterator(picture):
            delays.append(frame.info["duration"])
            pictures.append(np.asarray(frame.convert("RGB"))[::3, ::3])
    assert sum(delays) == pytest.approx(7000 / rate, abs=5)
    assert np.abs(np.stack(pictures).astype(int) - clip).max() <= 4


def test_gif_joins_equal_frames_and_keeps_the_time(tmp_path):
    file = write_gif(tmp_path / "clip.gif", few_colours(1).repeat(4, axis=0), 10.0)
    with Image.open(file.path) as picture:
        assert sum(frame.info["duration"] for frame in ImageSequence.Iterator(picture)) == 400


def test_gif_faster_than_viewers_show_is_refused(tmp_path):
    with pytest.raises(ValueError, match="up to 50"):
        write_gif(tmp_path / "clip.gif", FRAMES, 60.0)


@pytest.mark.parametrize("columns", [None, 2, 7])
def test_contact_sheet_holds_every_frame_in_order(tmp_path, columns):
    file = write_contact_sheet(tmp_path / "sheet.png", FRAMES, columns, upscale=1)
    sheet = np.asarray(Image.open(file.path).convert("RGB"))
    assert sheet.shape == (file.height, file.width, 3)
    places = [_find(sheet, frame) for frame in FRAMES]
    assert places == sorted(places)
    assert len({top for top, _ in places}) == -(-len(FRAMES) // (columns or 5))


def _find(sheet: np.ndarray, frame: np.ndarray) -> tuple[int, int]:
    windows = np.lib.stride_tricks.sliding_window_view(sheet, frame.shape)[:, :, 0]
    found = np.argwhere((windows == frame).all(axis=(2, 3, 4)))
    assert len(found) == 1
    return tuple(int(v) for v in found[0])


def test_contact_sheet_numbers_its_frames():
    white = np.full((2, 40, 40, 3), 255, np.uint8)
    sheet = np.asarray(contact_sheet(white))
    left, right = sheet[:, : sheet.shape[1] // 2], sheet[:, sheet.shape[1] // 2 :]
    assert left.min() < 200 and right.min() < 200, "a number in dark ink over each frame"
    assert not np.array_equal(left[:, : right.shape[1]], right[:, : left.shape[1]])


def test_contact_sheet_refuses_no_columns(tmp_path):
    with pytest.raises(ValueError, match="0 columns"):
        write_contact_sheet(tmp_path / "sheet.png", FRAMES, columns=0)
    assert list(tmp_path.iterdir()) == []


def test_png_frames_are_exact_and_replace_earlier_ones(tmp_path):
    folder = tmp_path / "frames"
    write_png_frames(folder, FRAMES)
    file = write_png_frames(folder, FRAMES[:2], upscale=2)
    assert sorted(entry.name for entry in folder.iterdir()) == ["frame-000.png", "frame-001.png"]
    assert (file.frames, file.height, file.width) == (2, 12, 18)
    for index in range(2):
        pixels = np.asarray(Image.open(folder / f"frame-{index:03d}.png"))
        assert np.array_equal(pixels[::2, ::2], FRAMES[index]) and np.array_equal(pixels[1::2, 1::2], FRAMES[index])
    assert [entry.name for entry in tmp_path.iterdir()] == ["frames"]


def test_png_frames_never_remove_what_is_not_theirs(tmp_path):
    (tmp_path / "letter.txt").write_text("keep")
    with pytest.raises(OutputError, match="letter.txt"):
        write_png_frames(tmp_path, FRAMES)
    assert (tmp_path / "letter.txt").read_text() == "keep"
    with pytest.raises(OutputError, match="it is a file"):
        write_png_frames(tmp_path / "letter.txt", FRAMES)
