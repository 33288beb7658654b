"""What bounds a step: the memory, the read ports, the processing groups, or what lies between their loops."""

from __future__ import annotations

from dataclasses import dataclass

from ...hls.counting import Memory, OperationCounts
from ..program.memory import PORTS
from .step import StepCounts, whole

__all__ = ["CLOSE", "Limit", "limit_of"]

CLOSE = 1.07
"""Of the time that the bytes alone need: up to here the memory is the limit."""

ABOUT = 0.9  # a resource that is used this share of a class's cycles bounds it


@dataclass(frozen=True)
class Limit:
    """``over_memory``: the step's time over that of its bytes at the sustained rate. ``name``: what bounds it."""

    name: str
    over_memory: float

    @property
    def is_memory(self) -> bool:
        return self.over_memory <= CLOSE


def limit_of(step: StepCounts, memory: Memory) -> Limit:
    """Where the time above the bytes' own is spent most."""
    sums = whole(step)
    cycles, moved = sums.cycles, sums.beats / memory.beats_per_cycle
    if cycles <= CLOSE * moved:
        return Limit("memory bandwidth", cycles / moved)
    excess = {name: operation.cycles - operation.beats / memory.beats_per_cycle for name, operation in step.items()}
    worst = max(excess, key=lambda name: excess[name])
    share = excess[worst] / (cycles - moved)
    return Limit(
        f"{_bound(step[worst], memory)} in {worst} ({min(1.0, share):.0%} of the time beyond its bytes)", cycles / moved
    )


def _bound(operation: OperationCounts, memory: Memory) -> str:
    ports = operation.read_beats / PORTS / memory.port_width
    if ports >= ABOUT * operation.cycles:
        return "read ports"
    if operation.loop >= ABOUT * operation.cycles:
        return "processing groups"
    if operation.loop + ports < 0.5 * operation.cycles:
        return "vector units and latencies"
    return "groups and what follows their loops"
