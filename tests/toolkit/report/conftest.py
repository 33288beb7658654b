"""Small made-up runs whose every number is known."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from fastcar.toolkit.generation.record import Generation
from fastcar.toolkit.report import ReportFacts, RunView
from fastcar.toolkit.settings import ReplaySettings, SamplingSettings

Pair = tuple[RunView, RunView]


def _pair(
    frames: int = 4,
    clips: int = 1,
    guided: bool = True,
    layers: int = 3,
    grid: tuple[int, int] = (2, 4),
    size: tuple[int, int] = (16, 32),
    thresholds: tuple[float | None, ...] | None = None,
    prompts: tuple[str, ...] | None = None,
    drift: int = 3,
) -> Pair:
    """A replay run and a dense run; the replay run's frame f is 0 .. ``drift`` f levels brighter."""
    random = np.random.default_rng(7)
    places, rows = grid[0] * grid[1], clips * (2 if guided else 1)
    thresholds = (-1.0,) * layers if thresholds is None else thresholds
    tas = random.normal(-1, 1, (frames, places, layers, rows)).astype(np.float32)
    tas[0], tas[-1, -1] = np.nan, np.nan
    limits = np.array([np.inf if t is None else t for t in thresholds], np.float32)
    replay = np.nan_to_num(tas, nan=-np.inf) > limits[:, None]
    codes = random.integers(0, 50, (clips, frames, places)).astype(np.int32)
    other = codes.copy()
    other[:, 1:, 0] += 1
    picture = random.integers(0, 200, (clips, frames, *size, 3))
    brighter = picture + random.integers(0, drift + 1, picture.shape) * np.arange(frames)[:, None, None, None]
    prompts = prompts or tuple(f"prompt {clip}" for clip in range(clips))

    def view(codes: np.ndarray, flags: np.ndarray, limits: tuple, seconds: float, pixels: np.ndarray) -> RunView:
        run = Generation(prompts, codes, tas, flags, limits, np.full(frames, seconds), grid)
        return RunView(run, pixels.clip(0, 255).astype(np.uint8))

    dense = view(codes, np.zeros_like(replay), (None,) * layers, 0.5, picture)
    return view(other, replay, thresholds, 0.25, brighter), dense


@pytest.fixture
def make_pair() -> Callable[..., Pair]:
    return _pair


@pytest.fixture
def facts() -> ReportFacts:
    return ReportFacts(
        model="car",
        recipe="w4a8",
        backend="onnxruntime",
        machine="x86-64, 2 cores",
        seed=1,
        sampling=SamplingSettings(0.9, 40, 0.95, 3.0),
        replay=ReplaySettings((-1.0,) * 3, "all", 2),
        versions={"fastcar": "0.1.0"},
        command='fastcar generate car.bundle --prompt "left turn"',
    )
