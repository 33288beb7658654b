"""Energy from samples of power, frame by frame."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["EnergyRecord", "energy_between"]


@dataclass(frozen=True)
class EnergyRecord:
    """What the sensors of a board measured while a clip was generated. Energy in joules, power in watts.

    ``rails``: what is counted; ``mean_watts_of`` has a mean of every rail that was read, also of those that are part of
    a counted one. ``basis``: what the counted rails are. ``energy_per_frame_joules``: from one mark to the next, the
    first from the start of the measurement and so with the prompt's steps; NaN where it was not measured to the end of
    the frame, and left out of the total. ``note``: why the measurement ended early, else empty.
    """

    rails: tuple[str, ...]
    basis: str
    source: str
    energy_per_frame_joules: np.ndarray
    mean_watts: float
    mean_watts_of: dict[str, float]
    samples: int
    interval_seconds: float
    note: str = ""

    @property
    def energy_joules_total(self) -> float:
        """Of the frames that were measured; NaN if none was."""
        known = self.energy_per_frame_joules[~np.isnan(self.energy_per_frame_joules)]
        return float(known.sum()) if len(known) else float("nan")

    @property
    def joules_per_frame(self) -> float:
        """The mean over the frames that were measured; NaN if none was."""
        known = self.energy_per_frame_joules[~np.isnan(self.energy_per_frame_joules)]
        return float(known.mean()) if len(known) else float("nan")

    def summary(self) -> dict[str, Any]:
        """Plain types; None for what was not measured."""
        return {
            "source": self.source,
            "rails": list(self.rails),
            "basis": self.basis,
            "joules_total": _number(self.energy_joules_total),
            "joules_per_frame": _number(self.joules_per_frame),
            "joules_of_frames": [_number(value) for value in self.energy_per_frame_joules.tolist()],
            "mean_watts": _number(self.mean_watts),
            "mean_watts_of": {name: _number(value) for name, value in self.mean_watts_of.items()},
            "samples": self.samples,
            "interval_seconds": self.interval_seconds,
            "note": self.note,
        }

    def text(self) -> str:
        """One line for people."""
        note = f"; {self.note}" if self.note else ""
        if np.isnan(self.energy_joules_total):
            return f"not measured ({self.note or 'no frame was measured to its end'})"
        return (
            f"{self.joules_per_frame:.3g} J per frame, {self.energy_joules_total:.4g} J in all, "
            f"mean {self.mean_watts:.3g} W ({self.basis}: {', '.join(self.rails)}; {self.source}, "
            f"sampled at {1 / self.interval_seconds:.3g} Hz{note})"
        )


def energy_between(times: np.ndarray, watts: np.ndarray, marks: np.ndarray) -> np.ndarray:
    """(len(marks) - 1,) joules from each mark to the next, of power that is linear between its samples.

    ``times`` (n,) and ``marks`` in seconds of one clock, ascending; ``watts`` (n,). NaN where a mark lies outside the
    samples.
    """
    if len(times) == 0:
        return np.full(max(len(marks) - 1, 0), np.nan)
    every = np.union1d(times, marks)  # exact: the trapezoids of the parts add up to those of the whole
    power = np.interp(every, times, watts)
    energy = np.concatenate([[0.0], np.cumsum(np.diff(every) * (power[1:] + power[:-1]) / 2)])
    at_marks = energy[np.searchsorted(every, marks)]
    at_marks[(marks < times[0]) | (marks > times[-1])] = np.nan
    return np.diff(at_marks)


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
