"""Episodes on disk: recorded in parallel, read back, and cut into labelled clips."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from .labels import FIELDS, PHRASES, label
from .simulator import Episode, record

__all__ = ["EPISODE_FRAMES", "Clips", "Split", "find_clips", "mirror_odd", "record_split", "splits"]

EPISODE_FRAMES = 300


@dataclass(frozen=True)
class Split:
    """A set of episodes; no track seed is in two splits."""

    name: str
    seeds: range


def splits(seed: int, train: int = 240, held_out: int = 24) -> tuple[Split, Split]:
    """The training and the held-out split of a run: ``train`` and ``held_out`` episodes."""
    first = 100_000 * seed
    return Split("train", range(first, first + train)), Split(
        "held_out", range(first + 50_000, first + 50_000 + held_out)
    )


def _record_to(folder: Path, seed: int) -> Path:
    """Record one episode unless its file exists; the file appears only when it is complete."""
    path = folder / f"{seed}.npz"
    if not path.exists():
        episode = record(seed, EPISODE_FRAMES)
        partial_path = folder / f".{seed}.tmp.npz"
        np.savez(partial_path, frames=episode.frames, telemetry=episode.telemetry)
        partial_path.rename(path)
    return path


def record_split(
    split: Split, folder: Path, processes: int, advance: Callable[[], object] = lambda: None
) -> list[Episode]:
    """All episodes of ``split``, recorded where they are missing; ``advance`` is called after each."""
    target = folder / split.name
    target.mkdir(parents=True, exist_ok=True)
    # spawn: a forked child would inherit the thread pools of torch
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for _ in pool.imap_unordered(partial(_record_to, target), split.seeds):
            advance()
    return [_load(target / f"{seed}.npz", seed) for seed in split.seeds]


def _load(path: Path, seed: int) -> Episode:
    with np.load(path) as stored:
        return Episode(seed, stored["frames"], stored["telemetry"])


def mirror_odd(episodes: list[Episode]) -> list[Episode]:
    """Every other episode flipped left to right: the tracks run anticlockwise, and left turns would prevail."""
    sign = np.array([-1 if field in ("yaw", "slip", "steer") else 1 for field in FIELDS], np.float32)
    return [Episode(e.seed, e.frames[:, :, ::-1], e.telemetry * sign) if e.seed % 2 else e for e in episodes]


@dataclass(frozen=True)
class Clips:
    """Where clips start in a row of episodes laid end to end, and what they show.

    ``start`` (clips,) int64 index of the first frame; ``phrase`` (clips,) int64 index into ``PHRASES``; ``frames``
    the length of every clip.
    """

    start: np.ndarray
    phrase: np.ndarray
    frames: int

    def counts(self) -> dict[str, int]:
        numbers = np.bincount(self.phrase, minlength=len(PHRASES))
        return {phrase: int(number) for phrase, number in zip(PHRASES, numbers, strict=True)}


def find_clips(episodes: list[Episode], frames: int, stride: int) -> Clips:
    """Every clip of ``frames`` frames that starts at a multiple of ``stride`` within its episode."""
    found = list(_starts(episodes, frames, stride))
    start, phrase = np.array(found, np.int64).reshape(-1, 2).T
    return Clips(start, phrase, frames)


def _starts(episodes: list[Episode], frames: int, stride: int) -> Iterator[tuple[int, int]]:
    first = 0
    for episode in episodes:
        length = len(episode.frames)
        for offset in range(0, length - frames + 1, stride):
            yield first + offset, PHRASES.index(label(episode.telemetry[offset : offset + frames]))
        first += length
