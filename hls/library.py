"""The engine's C simulation called from Python: one start over host memory, as a driver would on the board."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np

from ..toolkit.program.registers import CONTROL, REPORT
from .build import build_library
from ..toolkit.program.engine import EngineConfig

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
        self._library.fastcar_run.argtypes = [ctypes.c_void_p] * 5 + [ctypes.c_char_p, ctypes.c_size_t]

    def run(self, program: np.ndarray, weights: np.ndarray, state: np.ndarray, control: np.ndarray) -> dict[str, int]:
        """Start the engine; the report's fields by name. ``state`` is written in place.

        program (descriptors, 16) uint32, weights and state (beats, 16) uint8, control as packed by ``CONTROL``.
        SimulationError if the simulation fails; an error of the program is in ``status``.
        """
        for name, array in (("program", program), ("weights", weights), ("state", state), ("control", control)):
            if not array.flags.c_contiguous:
                raise ValueError(f"{name} is not contiguous; expected memory as the engine reads it")
        report = np.zeros(REPORT.length, np.uint32)
        message = ctypes.create_string_buffer(MESSAGE_BYTES)
        arrays = (program, weights, state, control, report)
        if self._library.fastcar_run(*(array.ctypes.data for array in arrays), message, MESSAGE_BYTES):
            raise SimulationError(message.value.decode(errors="replace"))
        return REPORT.unpack(report)

    def check_sizes(self) -> None:
        """ValueError unless library and Python agree on the record sizes."""
        if CONTROL.length != 20:
            raise ValueError(f"control has {CONTROL.length} words")
