"""The data generator: repeatable episodes, labels that follow from telemetry, clips that stay within an episode."""

from __future__ import annotations

import numpy as np
import pytest

from fastcar.export.car.dataset import Split, find_clips, mirror_odd, record_split, splits
from fastcar.export.car.labels import FIELDS, PHRASES, WORDS, label
from fastcar.export.car.simulator import Episode, record

FRAMES = 16


def telemetry(frames: int = FRAMES, **columns: float | np.ndarray) -> np.ndarray:
    """Telemetry of a steady drive at 40 units/s, with the given columns replaced."""
    rows = np.zeros((frames, len(FIELDS)), np.float32)
    for field, value in {"speed": 40.0, **columns}.items():
        rows[:, FIELDS.index(field)] = value
    return rows


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({}, "straight"),
        ({"yaw": np.linspace(0, 0.3, FRAMES)}, "left turn"),
        ({"yaw": np.linspace(0, -0.3, FRAMES)}, "right turn"),
        ({"yaw": np.linspace(0, 1.0, FRAMES)}, "sharp left turn"),
        ({"yaw": np.linspace(0, -1.0, FRAMES)}, "sharp right turn"),
        ({"speed": np.linspace(20, 50, FRAMES)}, "accelerating"),
        ({"speed": np.linspace(50, 20, FRAMES)}, "braking"),
        ({"speed": 8.0}, "slow"),
        ({"off_track": 1.0}, "off track"),
        ({"slip": -12.0}, "sliding"),
        ({"slip": 12.0, "off_track": 1.0, "speed": 8.0}, "sliding"),
    ],
)
def test_label(columns: dict, expected: str) -> None:
    assert label(telemetry(**columns)) == expected


def test_phrases_have_at_most_three_words() -> None:
    assert len(PHRASES) == len(set(PHRASES)) == 10
    assert all(1 <= len(phrase.split()) <= 3 for phrase in PHRASES)
    assert set(WORDS) == {word for phrase in PHRASES for word in phrase.split()}


def test_clips_stay_within_their_episode() -> None:
    left = telemetry(20, yaw=np.linspace(0, 0.4, 20))
    episodes = [
        Episode(0, np.zeros((20, 2, 2, 3), np.uint8), left),
        Episode(2, np.zeros((17, 2, 2, 3), np.uint8), telemetry(17)),
    ]
    clips = find_clips(episodes, FRAMES, stride=1)
    assert clips.start.tolist() == [0, 1, 2, 3, 4, 20, 21]
    assert clips.counts() == {phrase: {"left turn": 5, "straight": 2}.get(phrase, 0) for phrase in PHRASES}


def test_mirrored_episode_swaps_left_and_right() -> None:
    frames = np.arange(2 * 2 * 3, dtype=np.uint8).reshape(1, 2, 2, 3)
    rows = telemetry(yaw=np.linspace(0, 0.3, FRAMES), steer=-0.5)
    even, odd = mirror_odd([Episode(4, frames, rows), Episode(5, frames, rows)])
    assert label(even.telemetry) == "left turn" and label(odd.telemetry) == "right turn"
    assert np.array_equal(even.frames, frames)
    assert odd.frames[0, 0, 0].tolist() == frames[0, 0, 1].tolist()
    assert odd.telemetry[0, FIELDS.index("steer")] == 0.5


def test_splits_share_no_track() -> None:
    seeds = [seed for run in (0, 1, 2) for split in splits(run) for seed in split.seeds]
    assert len(seeds) == len(set(seeds)) == 3 * (240 + 24)


def test_same_seed_gives_the_same_episode(tmp_path) -> None:
    pytest.importorskip("gymnasium")
    pytest.importorskip("Box2D")
    first, again, other = record(7, 24), record(7, 24), record(8, 24)
    assert first.frames.shape == (24, 64, 64, 3) and first.frames.dtype == np.uint8
    assert first.telemetry.shape == (24, len(FIELDS)) and np.isfinite(first.telemetry).all()
    assert np.array_equal(first.frames, again.frames) and np.array_equal(first.telemetry, again.telemetry)
    assert not np.array_equal(first.frames, other.frames)


def test_episode_shows_a_moving_car_on_grass_and_road() -> None:
    pytest.importorskip("gymnasium")
    pytest.importorskip("Box2D")
    episode = record(3, 24)
    red, green, _ = (episode.frames[..., channel].astype(int) for channel in range(3))
    grass = (green > red + 40).mean((1, 2))
    assert (grass > 0.3).all() and (grass < 0.98).all()
    car = (red > green + 60)[:, 44:64, 26:38].any((1, 2))
    assert car.all(), "the car stays at the bottom centre of every frame"
    assert episode.telemetry[:, FIELDS.index("speed")].max() > 3
    assert (np.abs(np.diff(episode.frames.astype(int), axis=0)).mean((1, 2, 3)) > 0).all()


def test_recorded_split_is_read_back_and_not_recorded_twice(tmp_path, monkeypatch) -> None:
    pytest.importorskip("gymnasium")
    from fastcar.export.car import dataset

    folder = tmp_path / "few"
    folder.mkdir()
    rows = telemetry(3)
    for seed in (5, 6):
        np.savez(folder / f"{seed}.npz", frames=np.full((3, 64, 64, 3), seed, np.uint8), telemetry=rows)
    monkeypatch.setattr(dataset, "EPISODE_FRAMES", -1)  # recording anything would fail
    calls: list[None] = []
    episodes = record_split(Split("few", range(5, 7)), tmp_path, 1, lambda: calls.append(None))
    assert [int(e.frames[0, 0, 0, 0]) for e in episodes] == [5, 6] and len(calls) == 2
