"""What Dynamic Resource Scheduling saves: the same decisions counted with it, without it, and dense."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..toolkit.program.memory import BEAT_BYTES, PORTS
from ..toolkit.program.registers import CONTROL, FLAG_REASSIGN, merge_words
from .counting import EngineCounter
from .library import EngineLibrary

__all__ = ["MODES", "ModeCounts", "count_modes"]

MODES = ("dense", "replay", "replay+drs")


@dataclass(frozen=True)
class ModeCounts:
    """One mode over some starts. Cycles and what follows from them are the cycle model's: estimated."""

    mode: str
    counters: dict[str, int]  # sums, as the registers count them
    cycles_by_operation: dict[str, float]
    beats_per_cycle: float  # what the memory sustains
    groups: int  # of each column

    @property
    def steps(self) -> int:
        return self.counters["steps_done"]

    @property
    def cycles_per_step(self) -> float:
        return self.counters["cycles"] / self.steps

    @property
    def beats(self) -> int:
        """Every beat that crosses a memory port."""
        ports = [f"{kind}_beats{port}" for kind in ("weight", "cache") for port in range(PORTS)]
        return sum(self.counters[name] for name in (*ports, "cache_reads", "cache_writes"))

    @property
    def bytes_per_step(self) -> float:
        return self.beats * BEAT_BYTES / self.steps

    @property
    def memory_use(self) -> float:
        """Beats moved, of those the memory could have delivered in the time."""
        return self.beats / self.beats_per_cycle / self.counters["cycles"]

    @property
    def group_utilisation(self) -> float:
        """Clocks the groups worked, of those of the loops that use them."""
        return self.counters["busy"] / (self.counters["loop"] * PORTS * self.groups)

    def milliseconds_per_step(self, clock_mhz: float) -> float:
        return self.cycles_per_step / clock_mhz / 1e3


def count_modes(
    library: EngineLibrary | EngineCounter,
    program: np.ndarray,
    starts: Sequence[tuple[dict[str, float], np.ndarray]],
    beats_per_cycle: float,
) -> dict[str, ModeCounts]:
    """``starts``: control records and decisions (steps, layers) as masks of rows."""
    return {mode: _count(library, program, starts, beats_per_cycle, mode) for mode in MODES}


def _count(
    library: EngineLibrary | EngineCounter,
    program: np.ndarray,
    starts: Sequence[tuple[dict[str, float], np.ndarray]],
    beats_per_cycle: float,
    mode: str,
) -> ModeCounts:
    totals: dict[str, int] = {}
    cycles: dict[str, float] = {}
    for control, replays in starts:
        flags = int(control["flags"]) & ~FLAG_REASSIGN | (FLAG_REASSIGN if mode == "replay+drs" else 0)
        masks = np.zeros_like(replays) if mode == "dense" else replays
        counts = library.count(program, CONTROL.pack(**{**control, "flags": flags}), masks, beats_per_cycle)
        if counts.report["status"]:
            raise ValueError(f"the engine refuses the start: status {counts.report['status']}")
        for name, value in merge_words(counts.report).items():
            totals[name] = totals.get(name, 0) + value
        for code, operation in counts.operations.items():
            cycles[code.name] = cycles.get(code.name, 0.0) + operation.cycles
    return ModeCounts(mode, totals, cycles, beats_per_cycle, library.config.groups)
