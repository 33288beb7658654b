"""The engine's C simulation called from Python: one start over host memory, as a driver would on the board."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ..toolkit.program.descriptors import Opcode
from ..toolkit.program.engine import EngineConfig
from ..toolkit.program.register_map import POINTERS
from ..toolkit.program.registers import REPORT
from .build import build_library

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
        self._library.fastcar_count.restype = ctypes.c_int
        self._library.fastcar_count.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_double] + [ctypes.c_void_p] * 3

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

    def count(
        self, program: np.ndarray, control: np.ndarray, replays: np.ndarray, ddr_beats_per_cycle: float
    ) -> tuple[dict[str, int], dict[str, float]]:
        """What a start would count and, by the cycle model, take: the report, and cycles by opcode.

        replays (steps, layers) uint32, bit r: row r replays. No buffer is read or written.
        """
        report = np.zeros(REPORT.length, np.uint32)
        by_opcode = np.zeros(16, np.float64)
        masks = np.ascontiguousarray(replays, np.uint32)
        self._library.fastcar_count(
            program.ctypes.data,
            control.ctypes.data,
            ddr_beats_per_cycle,
            masks.ctypes.data,
            report.ctypes.data,
            by_opcode.ctypes.data,
        )
        return REPORT.unpack(report), {code.name: float(by_opcode[code]) for code in Opcode if by_opcode[code]}
