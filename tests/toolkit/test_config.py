"""Room for longer clips than those of the training: what follows from it, and what cannot be."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError
from random_models import layout

from fastcar.toolkit.config import MAX_POSITIONS, FrameLayout
from fastcar.toolkit.errors import UsageError
from fastcar.toolkit.generation.run import frames_within


def test_without_more_room_the_longest_clip_is_the_trained_one():
    plain = layout()  # a prompt of 3, 4 frames of 6
    assert (plain.room, plain.positions, plain.trained_positions) == (4, 27, 27)
    stored = json.loads(plain.model_dump_json())
    del stored["max_frames"]  # written before there was such a field
    assert FrameLayout.model_validate(stored) == plain


def test_room_moves_the_limit_and_not_the_default():
    longer = layout(max_frames=9)
    assert (longer.frames, longer.room, longer.positions, longer.trained_positions) == (4, 9, 57, 27)
    assert frames_within("car", longer, None) == 4 and frames_within("car", longer, 9) == 9
    assert longer.of_frames(12) == layout(frames=12), "what is planned for another length has room for that"


@pytest.mark.parametrize(
    ("of", "frames", "words"),
    [
        (layout(), 5, ("--frames: 5", "1 to 4", "car was trained for", "--max-frames 5")),
        (layout(max_frames=9), 10, ("--frames: 10", "1 to 9", "car was trained for 4", "--max-frames 10")),
        (layout(max_frames=9), 0, ("--frames: 0", "1 to 9", "at least one")),
    ],
)
def test_beyond_the_room_both_lengths_are_named(of: FrameLayout, frames: int, words: tuple[str, ...]):
    with pytest.raises(UsageError) as caught:
        frames_within("car", of, frames)
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_less_room_than_trained_for_is_none():
    assert layout(max_frames=4).positions == layout().positions
    with pytest.raises(ValidationError, match="max_frames 3 must be at least frames 4"):
        layout(max_frames=3)


def test_no_more_positions_than_attention_can_sum_up():
    """Weights of up to 2^15 and their own: 65535 slots of the past stay below 2^31."""
    most = (MAX_POSITIONS - 3) // 6
    assert layout(max_frames=most).positions <= MAX_POSITIONS and MAX_POSITIONS << 15 == 1 << 31
    with pytest.raises(ValidationError, match=f"of {most + 1} frames, at most {MAX_POSITIONS}"):
        layout(max_frames=most + 1)
