"""The supply power of a board while it generates: sampled in a thread of its own, whatever happens to the sensors."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType

import numpy as np

from .power_record import EnergyRecord, energy_between
from .power_sources import PowerRail, PowerSources, finite_watts, open_power_sources

__all__ = ["EnergyRecord", "PowerMeter", "PowerRail", "PowerSources", "open_power_sources"]

PATIENCE_SECONDS = 2.0  # a sensor that takes longer than this to answer is given up


class PowerMeter:
    """Measures while its block runs; ``mark`` ends a frame. ``clock`` counts seconds and never goes back.

    A sensor that fails ends the measurement, with a note in the record, and nothing else.

    Example::

        sources = open_power_sources()
        if sources:
            with PowerMeter(sources) as meter:
                clip = fastcar.generate(bundle, "left turn", on_frame=lambda frame, codes: meter.mark())
            print(meter.record().text())
    """

    def __init__(
        self,
        sources: PowerSources,
        interval_seconds: float = 0.1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not interval_seconds > 0:
            raise ValueError(f"interval_seconds {interval_seconds}; expected a positive number")
        self.sources, self.interval_seconds, self._clock = sources, interval_seconds, clock
        self._times: list[float] = []
        self._watts: list[list[float]] = []
        self._marks: list[float] = []
        self._note = ""
        self._began, self._stop = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._sample_until_stopped, name="fastcar-power", daemon=True)

    def __enter__(self) -> PowerMeter:
        self._thread.start()
        self._began.wait(PATIENCE_SECONDS)
        self._marks.append(self._clock())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(PATIENCE_SECONDS)
        if self._thread.is_alive():
            self._note = self._note or "a sensor did not answer"

    def mark(self) -> None:
        """A frame is finished."""
        self._marks.append(self._clock())

    def record(self) -> EnergyRecord:
        """After the block; frames are those between its start and the marks."""
        samples = min(len(self._times), len(self._watts))
        times, marks = np.array(self._times[:samples]), np.array(self._marks)
        watts = np.array(self._watts[:samples]).reshape(samples, len(self.sources.rails))
        counted = [index for index, rail in enumerate(self.sources.rails) if rail in self.sources.counted]
        return EnergyRecord(
            rails=tuple(rail.name for rail in self.sources.counted),
            basis=self.sources.basis,
            source=self.sources.label,
            energy_per_frame_joules=energy_between(times, watts[:, counted].sum(axis=1), marks),
            mean_watts=_mean(times, watts[:, counted].sum(axis=1)),
            mean_watts_of={rail.name: _mean(times, watts[:, index]) for index, rail in enumerate(self.sources.rails)},
            samples=samples,
            interval_seconds=self.interval_seconds,
            note=self._note,
        )

    def _sample_until_stopped(self) -> None:
        """At once, every interval, and once more from the end on, so that all marks lie between two samples."""
        following, last = self._clock(), False
        while self._sample() and not last:
            self._began.set()
            following = max(following + self.interval_seconds, self._clock())  # no hurry after a slow sensor
            last = self._stop.wait(following - self._clock())
        self._began.set()

    def _sample(self) -> bool:
        """Read every rail once; False if that is not possible any more."""
        before = self._clock()
        try:
            watts = [finite_watts(rail) for rail in self.sources.rails]
        except Exception as error:  # whatever a driver raises, the clip goes on
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            self._note = f"the measurement ended after {len(self._times)} samples: {reason}"
            return False
        after = self._clock()
        self._watts.append(watts)
        self._times.append((before + after) / 2)
        return True


def _mean(times: np.ndarray, watts: np.ndarray) -> float:
    """Over the time between the first and the last sample; NaN for none."""
    if len(times) < 2 or times[-1] <= times[0]:
        return float(watts.mean()) if len(watts) else float("nan")
    return float(energy_between(times, watts, times[[0, -1]])[0] / (times[-1] - times[0]))
