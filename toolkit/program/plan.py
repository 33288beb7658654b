"""What a clip needs of physically contiguous memory: one buffer for the program, one for weights, one for state."""

from __future__ import annotations

from dataclasses import dataclass

from .memory import BEAT_BYTES, StateLayout
from .packed import Packed

__all__ = ["MINIMUM_BYTES", "MemoryPlan", "plan_memory"]

PAGE_BYTES = 4096
MINIMUM_BYTES = 8192  # a smaller buffer may come from above 4 GB with XRT 2.17 (PYNQ issue 1500)


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes of each buffer, in whole pages, as the allocator will take them."""

    program: int
    weights: int
    state: int

    @property
    def total(self) -> int:
        return self.program + self.weights + self.state


def plan_memory(packed: Packed, layout: StateLayout) -> MemoryPlan:
    return MemoryPlan(*map(_pages, (packed.program.nbytes, packed.weights.nbytes, layout.total_beats * BEAT_BYTES)))


def _pages(size: int) -> int:
    return max(MINIMUM_BYTES, -(-size // PAGE_BYTES) * PAGE_BYTES)
