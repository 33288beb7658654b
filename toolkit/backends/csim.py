"""The overlay's C++ as a back end: whole frames a start, with the buffers and registers a board has."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from ...hls.library import EngineLibrary, SimulationError
from ..config import BackboneConfig, DepthConfig, FrameLayout
from ..errors import BundleError
from ..program.memory import StateLayout
from ..program.packed import Packed
from ..program.registers import CONTROL, FLAG_TEACHER, STATUS
from .engine import EngineBackend
from .engine_memory import EngineMemory
from .protocol import FrameRecord

__all__ = ["CSimBackend", "Start"]

NOMINAL_RATE = 3.4  # beats a clock; any will do where only counters are compared
TIMES = ("cycles_low", "cycles_high", "stalls_low", "stalls_high")  # the cycle model's, not counted by the simulation


@dataclass(frozen=True)
class Start:
    """One start of the engine: its control record, and the decisions (steps, layers) as masks of rows."""

    control: dict[str, float]
    replays: np.ndarray

    @property
    def decodes(self) -> bool:
        """Whether the engine read its own codes, not a given text."""
        return not int(self.control["flags"]) & FLAG_TEACHER


class CSimBackend(EngineBackend):
    """Runs the engine library over a packed model; ``reassign`` False turns Dynamic Resource Scheduling off.

    After every start the counters are compared with those of the schedule run without arithmetic: SimulationError if
    they differ. BundleError if the engine refuses the program.
    """

    name = "csim"

    def __init__(
        self,
        library: EngineLibrary,
        packed: Packed,
        config: BackboneConfig,
        layout: FrameLayout,
        reassign: bool = True,
        depth: DepthConfig | None = None,
    ) -> None:
        super().__init__(library.config, packed, config, layout, reassign, depth)
        self.library = library

    def memory_for(self, layout: StateLayout) -> EngineMemory:
        self.starts: list[Start] = []
        memory = EngineMemory(layout)
        if self.initial_byte:
            memory.state[:] = self.initial_byte
        return memory

    def run_engine(self, control: dict[str, float]) -> tuple[dict[str, int], float]:
        began = time.perf_counter()
        report = self.library.run(self.packed.program, self.packed.weights, self.memory.state, CONTROL.pack(**control))
        seconds = time.perf_counter() - began
        if report["status"]:
            name, meaning = STATUS[report["status"]]
            raise BundleError(
                "overlay", f"error {name}: {meaning}", "a program of this engine", "Pack the bundle again."
            )
        self._control, self._report = control, report
        return report, seconds

    def _run(self, tokens: np.ndarray, uniforms: np.ndarray, thresholds: np.ndarray, flags: int) -> FrameRecord:
        record = super()._run(tokens, uniforms, thresholds, flags)
        masks = (record.replay.astype(np.uint32) << np.arange(record.replay.shape[2], dtype=np.uint32)).sum(axis=2)
        self.starts.append(Start(self._control, masks))
        self._compare_counters()
        return record

    def _compare_counters(self) -> None:
        """The schedule without arithmetic must count what the simulation counted."""
        start = self.starts[-1]
        control = CONTROL.pack(**start.control)
        expected = self.library.count(self.packed.program, control, start.replays, NOMINAL_RATE).report
        for name, value in self._report.items():
            if name not in TIMES and expected[name] != value:
                raise SimulationError(f"counter {name} is {value}, the schedule says {expected[name]}")
