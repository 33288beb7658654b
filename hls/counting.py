"""The schedule without its arithmetic: what a start would move and, by the cycle model, how long it would take.

The C++ is the C simulation's own (sequencer, dealing, cursors; ``sim/account.h``, ``sim/timeline.h``). It is part of an
engine's library, and can be compiled alone: then it counts for engines of any size, in seconds after the first time.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, fields

import numpy as np

from ..toolkit.program.descriptors import Opcode
from ..toolkit.program.engine import DepthCapacity, EngineConfig
from ..toolkit.program.registers import REPORT
from .build import COUNTING, build_library

__all__ = ["ANY_ENGINE", "Counter", "Counts", "EngineCounter", "Memory", "OperationCounts", "counter_of_any_engine"]

OPCODES = 32  # places of the array by opcode

ANY_ENGINE = EngineConfig(
    name="any", groups=1, vector=1, rows=32, max_layers=256, max_hidden=16384, max_mlp=65536, max_heads=256,
    max_kv_heads=63, max_group=32, max_head_dim=128, max_slots=65536, max_codes=32768, weight_fifo_beats=64,
    clock_mhz=300, depth=DepthCapacity(layers=64, codes_per_position=16, code_dim=16384),
)  # fmt: skip
"""Capacities of the program that is counted without an engine: as large as the formats allow."""


@dataclass(frozen=True)
class Memory:
    """``beats_per_cycle``: of 16 bytes, what it sustains; ``port_width``: what a read port takes a cycle, in beats."""

    beats_per_cycle: float
    port_width: int = 1


@dataclass(frozen=True)
class OperationCounts:
    """Sums over the operations of an opcode: cycles by the model, beats of the read ports and of the cache port, clocks
    the groups worked, clocks of the loops that use them."""

    cycles: float = 0.0
    stalls: float = 0.0
    read_beats: float = 0.0
    cache_beats: float = 0.0
    busy: float = 0.0
    loop: float = 0.0

    def __add__(self, other: OperationCounts) -> OperationCounts:
        return OperationCounts(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def scaled(self, factor: float) -> OperationCounts:
        return OperationCounts(*(factor * getattr(self, f.name) for f in fields(self)))

    @property
    def beats(self) -> float:
        return self.read_beats + self.cache_beats


@dataclass(frozen=True)
class Counts:
    """``report``: the registers of a start; ``operations``: by opcode, those that occurred."""

    report: dict[str, int]
    operations: dict[Opcode, OperationCounts]


class _Settings(ctypes.Structure):
    """``CountSettings`` of sim/count.h."""

    _fields_ = (
        ("ddr_rate", ctypes.c_double),
        ("groups", ctypes.c_int32),
        ("vector", ctypes.c_int32),
        ("fifo_beats", ctypes.c_int32),
        ("port_width", ctypes.c_int32),
        ("omitted", ctypes.c_uint32),
    )


class Counter:
    """``library``: one with ``fastcar_count``, compiled for capacities that hold the program."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._count = library.fastcar_count
        self._count.restype = ctypes.c_int
        self._count.argtypes = [ctypes.c_void_p] * 6

    def count(
        self,
        program: np.ndarray,
        control: np.ndarray,
        replays: np.ndarray,
        engine: EngineConfig,
        memory: Memory,
        omitted: frozenset[Opcode] = frozenset(),
    ) -> Counts:
        """A start on an engine of ``engine``'s groups, vector and FIFOs. No buffer is read or written.

        replays (steps, layers) uint32, bit r: row r replays. ``omitted``: operations left out, with what they move.
        """
        report = np.zeros(REPORT.length, np.uint32)
        by_opcode = np.zeros((OPCODES, len(fields(OperationCounts))), np.float64)
        masks = np.ascontiguousarray(replays, np.uint32)
        settings = _Settings(
            memory.beats_per_cycle, engine.groups, engine.vector, engine.weight_fifo_beats, memory.port_width,
            sum(1 << code for code in omitted),
        )  # fmt: skip
        arrays = (masks, report, by_opcode)
        pointers = [program.ctypes.data, control.ctypes.data, ctypes.addressof(settings)]
        self._count(*pointers, *(array.ctypes.data for array in arrays))
        occurred = {code: OperationCounts(*map(float, by_opcode[code])) for code in Opcode if by_opcode[code].any()}
        return Counts(REPORT.unpack(report), occurred)


class EngineCounter:
    """Stands for an engine's library where only counts are wanted; its programs are those of ``ANY_ENGINE``."""

    def __init__(self, config: EngineConfig) -> None:
        self.config = config
        self._counter = counter_of_any_engine()

    def count(self, program: np.ndarray, control: np.ndarray, replays: np.ndarray, beats_per_cycle: float) -> Counts:
        """As ``EngineLibrary.count``."""
        return self._counter.count(program, control, replays, self.config, Memory(beats_per_cycle))


def counter_of_any_engine() -> Counter:
    """Compiled on first use. Its programs are those of ``ANY_ENGINE``. UsageError without g++."""
    return Counter(ctypes.CDLL(str(build_library(ANY_ENGINE, sources=COUNTING, optimize="-O2"))))
