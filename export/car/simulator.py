"""CarRacing-v3 video with telemetry: one episode of 64 x 64 frames from one seed."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from .driver import Driver
from .labels import FIELDS

__all__ = ["FRAME_RATE", "SIZE", "Episode", "record"]

SIZE = 64
FRAME_RATE = 25.0  # the simulator runs 50 steps a second and every 2nd is kept
_STEPS_PER_FRAME = 2
_ZOOM_STEPS = 52  # the camera zooms in during the first second
_CROP = (6, 0, 90, 84)  # left, top, right, bottom of the 96 x 96 state: the bar with the instruments is below
_LOST = 30.0  # units from the track from which there is only grass to see


@dataclass(frozen=True)
class Episode:
    """``frames`` (frames, 64, 64, 3) uint8 and ``telemetry`` (frames, len(FIELDS)) float32 of one drive."""

    seed: int
    frames: np.ndarray
    telemetry: np.ndarray


class _Camera:
    """Stands in for the environment's renderer, so that only the frames that are kept are drawn."""

    def __init__(self, render: Any) -> None:
        self.render, self.wanted = render, False

    def __call__(self, mode: str) -> Any:
        return self.render(mode) if self.wanted else None


def _make_environment() -> tuple[Any, _Camera]:
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    import gymnasium  # optional dependency: only the data generator needs it

    environment = gymnasium.make("CarRacing-v3").unwrapped
    camera = _Camera(environment._render)
    environment._render = camera
    return environment, camera


def _shrink(state: np.ndarray) -> np.ndarray:
    """state (96, 96, 3) uint8 -> (64, 64, 3) uint8: crop, then average over the area of each pixel."""
    from PIL import Image

    return np.asarray(Image.fromarray(state).resize((SIZE, SIZE), Image.Resampling.BOX, box=_CROP))


def _measure(car: Any, action: np.ndarray) -> list[float]:
    sideways, _ = car.hull.GetLocalVector(car.hull.linearVelocity)
    off_track = float(np.mean([not wheel.tiles for wheel in car.wheels]))
    return [float(np.hypot(*car.hull.linearVelocity)), car.hull.angle, sideways, *map(float, action), off_track]


def record(seed: int, frames: int) -> Episode:
    """Drive one episode; the same seed and length give the same episode.

    The episode is shorter than ``frames`` if the car gets lost or the lap ends. Raises ImportError without
    gymnasium[box2d].
    """
    environment, camera = _make_environment()
    environment.reset(seed=seed)
    driver, track = Driver(np.random.default_rng(seed)), np.asarray(environment.track)
    images, rows = [], []
    for step in range(_ZOOM_STEPS + frames * _STEPS_PER_FRAME):
        camera.wanted = step >= _ZOOM_STEPS and step % _STEPS_PER_FRAME == 1
        action = driver.act(track, environment.car)
        state, _, terminated, _, _ = environment.step(action)
        if camera.wanted:
            images.append(_shrink(state))
            rows.append(_measure(environment.car, action))
        distance = np.sqrt(np.square(track[:, 2:] - np.array(environment.car.hull.position)).sum(1).min())
        if terminated or distance > _LOST:
            break
    environment.close()
    telemetry = np.array(rows, np.float32).reshape(-1, len(FIELDS))
    return Episode(seed, np.array(images, np.uint8).reshape(-1, SIZE, SIZE, 3), telemetry)
