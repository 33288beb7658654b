"""A scripted driver: follows the track by pure pursuit, and now and then brakes, crawls, leaves the road or slides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["MANOEUVRES", "Driver", "Manoeuvre"]


@dataclass(frozen=True)
class Manoeuvre:
    """How to drive for a while.

    ``speed``: range of target speeds (units/s); ``offset``: range of distances from the centre line (units, the road
    is 6.7 to each side); ``steps``: range of environment steps it lasts; ``weight``: how often it is chosen;
    ``slide``: full lock and full gas instead of following the track.
    """

    speed: tuple[float, float]
    offset: tuple[float, float]
    steps: tuple[int, int]
    weight: float
    slide: bool = False


MANOEUVRES = {
    "cruise": Manoeuvre((30, 50), (0, 3), (60, 140), 0.34),
    "fast": Manoeuvre((60, 85), (0, 2), (50, 90), 0.13),
    "crawl": Manoeuvre((6, 12), (0, 3), (40, 70), 0.10),
    "stop": Manoeuvre((3, 8), (0, 3), (24, 40), 0.15),
    "excursion": Manoeuvre((20, 45), (11, 16), (40, 70), 0.08),
    "slide": Manoeuvre((60, 80), (0, 2), (24, 40), 0.11, slide=True),
}

_LOOKAHEAD = (4.0, 0.22)  # distance to the point steered at: units, plus seconds of travel


class Driver:
    """Controls for one episode; all randomness comes from ``rng``, so the same seed drives the same way."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.steps_left = 0
        self.jitter = 0.0

    def _choose(self) -> None:
        names = list(MANOEUVRES)
        weights = np.array([MANOEUVRES[name].weight for name in names])
        self.manoeuvre = MANOEUVRES[names[self.rng.choice(len(names), p=weights / weights.sum())]]
        self.steps_left = int(self.rng.integers(*self.manoeuvre.steps))
        self.speed = self.rng.uniform(*self.manoeuvre.speed)
        self.side = float(self.rng.choice([-1, 1]))
        self.offset = self.side * self.rng.uniform(*self.manoeuvre.offset)

    def act(self, track: np.ndarray, car: Any) -> np.ndarray:
        """track (tiles, 4) as the simulator keeps it, and the simulator's car -> steer, gas, brake (3,) float32."""
        if self.steps_left == 0:
            self._choose()
        self.steps_left -= 1
        velocity = float(np.hypot(*car.hull.linearVelocity))
        if self.manoeuvre.slide and velocity > 22:
            return np.array([self.side, 1.0, 0.0], np.float32)
        self.jitter = 0.9 * self.jitter + 0.05 * self.rng.normal()
        steer = np.clip(2.2 * self._bearing(track, car, velocity) + self.jitter, -1, 1)
        gas, brake = self._pedals(velocity, abs(steer))
        return np.array([steer, gas, brake], np.float32)

    def _bearing(self, track: np.ndarray, car: Any, velocity: float) -> float:
        """Angle (rad, right positive) from the car's nose to the point it should drive through."""
        position = np.array(car.hull.position)
        nearest = int(np.argmin(np.square(track[:, 2:] - position).sum(1)))
        ahead = int((_LOOKAHEAD[0] + _LOOKAHEAD[1] * velocity) / 3.5) + 1
        _, beta, x, y = track[(nearest + ahead) % len(track)]
        target = np.array([x + self.offset * np.cos(beta), y + self.offset * np.sin(beta)])
        right, forward = car.hull.GetLocalVector(tuple(target - position))
        return float(np.arctan2(right, forward))

    def _pedals(self, velocity: float, steer: float) -> tuple[float, float]:
        """Gas and brake towards the target speed; less gas in turns, or the rear wheels would spin out."""
        target = self.speed * (1 - 0.45 * steer)
        if velocity > 1.25 * target + 2:
            return 0.0, float(np.clip((velocity - target) / 25, 0.15, 0.8))
        return float(np.clip((target - velocity) / 12, 0.0, 1.0)) * (1 - 0.5 * steer), 0.0
