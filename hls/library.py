"""The engine's C simulation called from Python: one start over host memory, as a driver would on the board."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ..toolkit.program.engine import EngineConfig
from ..toolkit.program.register_map import POINTERS
from ..toolkit.program.registers import REPORT
from .build import build_library
from .counting import Counter, Counts, Memory

__all__ = ["EngineLibrary", "SimulationError"]

MESSAGE_BYTES = 1024


class SimulationError(RuntimeError):
    """The simulated hardware cannot go on: a deadlock, or data left in a stream."""


class EngineLibrary:
    """One configuration of the engine. ``path`` None: built, or taken from the cache."""

    def __init__(self, config: EngineConfig, path: Path | None = None) -> None:
        self.config = config
        self.path = path or build_library(config)
        self._library = ctypes.CDLL(str(self.path))
        self._library.fastcar_run.restype = ctypes.c_int
        self._library.fastcar_run.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_char_p, ctypes.c_size_t]
        self._counter = Counter(self._library)

    def run(self, program: np.ndarray, weights: np.ndarray, state: np.ndarray, control: np.ndarray) -> dict[str, int]:
        """Start the engine; the report's fields by name. ``state`` is written in place.

        program (descriptors, 16) uint32, weights and state (beats, 16) uint8, control as packed by ``CONTROL``.
        SimulationError if the simulation fails; an error of the program is in ``status``.
        """
        for name, array in (("program", program), ("weights", weights), ("state", state), ("control", control)):
            if not array.flags.c_contiguous:
                raise ValueError(f"{name} is not contiguous; expected memory as the engine reads it")
        kinds = {"program": program, "tables": weights, "weights": weights, "state": state}
        addresses = [kinds[pointer.rstrip("0123")].ctypes.data for pointer in POINTERS]
        return REPORT.unpack(self.run_at(addresses, control))

    def run_at(self, addresses: Sequence[int], control: np.ndarray) -> np.ndarray:
        """Start the engine with these host addresses as its pointer arguments (``POINTERS``): the report's words.

        Nothing checks that they are memory of the sizes in ``control``; see ``run`` for what may be raised.
        """
        report = np.zeros(REPORT.length, np.uint32)
        message = ctypes.create_string_buffer(MESSAGE_BYTES)
        pointers = (ctypes.c_void_p * len(POINTERS))(*addresses)
        if self._library.fastcar_run(pointers, control.ctypes.data, report.ctypes.data, message, MESSAGE_BYTES):
            raise SimulationError(message.value.decode(errors="replace"))
        return report

    def count(self, program: np.ndarray, control: np.ndarray, replays: np.ndarray, beats_per_cycle: float) -> Counts:
        """What a start would count and, by the cycle model, take. No buffer is read or written.

        replays (steps, layers) uint32, bit r: row r replays; ``beats_per_cycle``: what the memory sustains.
        """
        return self._counter.count(program, control, replays, self.config, Memory(beats_per_cycle))
