"""The overlay as a back end: a frame a doorbell, on a board or on the emulated device."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..board.buffers import DeviceBuffer
from ..board.session import Session
from ..board.target import Target
from ..bundle.bundle import Bundle
from ..program.memory import BEAT_BYTES, StateLayout
from ..program.plan import plan_memory
from .engine import Clock, EngineBackend, state_layout
from .engine_memory import EngineMemory

__all__ = ["PynqBackend"]

SHORTEST_DEADLINE = 60.0  # seconds
SLOW_BYTES_PER_SECOND = 2e9  # half of what the slowest board sustains
PATIENCE = 5


class PynqBackend(EngineBackend):
    """``deadline``: seconds a start may take; None: by the bytes it moves. ``close`` lets others use the device.

    ``clips`` and ``guided``: what the memory is planned for, at the model's full length, before anything is loaded.
    See ``Session`` for what opening raises. A DeviceError while it runs leaves the device usable: start again.
    """

    name = "pynq"
    leaves_processor_free = True

    def __init__(
        self,
        bundle: Bundle,
        target: Target,
        deadline: float | None = None,
        clips: int = 1,
        guided: bool = True,
        reassign: bool = True,
    ) -> None:
        manifest, packed = bundle.manifest, bundle.require_packed()
        super().__init__(manifest.engine, packed, manifest.config, manifest.frame_layout, reassign, manifest.depth)
        self.deadline, self.clock = deadline, Clock()
        self._state: DeviceBuffer | None = None
        rows, limit = clips * (2 if guided else 1), manifest.frame_layout.positions
        layout = state_layout(manifest.config, manifest.frame_layout, rows, clips, limit, depth=manifest.depth)
        self.session = Session(bundle, target, plan_memory(packed, layout))

    @property
    def facts(self) -> dict[str, Any]:
        """What ran: device, overlay, versions, clock; of the clip, the host's own seconds a frame and their share."""
        clock = self.clock
        return self.session.facts | {
            "host_seconds_per_frame": clock.host / clock.starts if clock.starts else None,
            "host_share": clock.host / clock.total if clock.starts else None,
        }

    def verify_memory(self) -> None:
        """DeviceError unless program and weights in the device's memory are the bundle's."""
        self.session.verify_memory()

    def memory_for(self, layout: StateLayout) -> EngineMemory:
        size = layout.total_beats * BEAT_BYTES
        if self._state is None or self._state.size != size:
            self._free_state()
            self._state = DeviceBuffer(self.session.target.device, "state", size)
            self.session.set_state(self._state)
        memory = EngineMemory(layout, self._state.beats)
        memory.state[:] = self.initial_byte
        self._state.buffer.flush()
        self._inputs = self._state.part(layout.thresholds, layout.output - layout.thresholds)
        self._outputs = self._state.part(layout.output, layout.total_beats - layout.output)
        bytes_a_step = self.packed.weights.nbytes + layout.cache_beats * BEAT_BYTES
        slow = bytes_a_step * layout.steps / SLOW_BYTES_PER_SECOND
        self._deadline = self.deadline or max(SHORTEST_DEADLINE, PATIENCE * slow)
        return memory

    def run_engine(self, control: dict[str, float]) -> tuple[dict[str, int], float]:
        self._inputs.flush()
        report, seconds = self.session.run(control, self._deadline)
        self._outputs.invalidate()
        return report, seconds

    def cached(self, position: int) -> dict[str, np.ndarray]:
        self._state.buffer.invalidate()
        return super().cached(position)

    def registers(self) -> str:
        """The engine's registers, a line each."""
        return self.session.call(self.session.driver.dump)

    def close(self) -> None:
        self._free_state()
        self.session.close()

    def _free_state(self) -> None:
        """With every view of it."""
        self.memory = self._inputs = self._outputs = self._state = None
