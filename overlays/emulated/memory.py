"""Physically contiguous memory as the engine's ports see it, of bounded size."""

from __future__ import annotations

import numpy as np

__all__ = ["BusError", "ContiguousMemory"]

PAGE = 4096
UNWRITTEN = 0xCD  # what fresh memory holds: never zero by luck


class BusError(RuntimeError):
    """An access outside every buffer or register: on a board the port or the processor would hang."""


class ContiguousMemory:
    """``size`` bytes from address ``base`` on, handed out in whole pages, first fit."""

    def __init__(self, size: int, base: int = 0x4000_0000) -> None:
        self.base, self.size = base, size
        self._buffers: dict[int, np.ndarray] = {}

    @property
    def free(self) -> int:
        """Bytes not handed out; they need not be in one piece."""
        return self.size - sum(buffer.nbytes for buffer in self._buffers.values())

    @property
    def buffers(self) -> int:
        return len(self._buffers)

    def allocate(self, size: int) -> int:
        """Address of ``size`` bytes; MemoryError if no gap is large enough."""
        size = max(PAGE, -(-size // PAGE) * PAGE)
        at = self.base
        for address in sorted(self._buffers):
            if address - at >= size:
                break
            at = address + self._buffers[address].nbytes
        if at + size > self.base + self.size:
            raise MemoryError(f"{size} bytes of contiguous memory; {self.free} of {self.size} are free")
        self._buffers[at] = np.full(size, UNWRITTEN, np.uint8)
        return at

    def release(self, address: int) -> None:
        del self._buffers[address]

    def view(self, address: int, size: int) -> np.ndarray:
        """(size,) uint8 at an address; BusError unless it lies inside one buffer."""
        for start, buffer in self._buffers.items():
            if start <= address and address + size <= start + buffer.nbytes:
                return buffer[address - start : address - start + size]
        raise BusError(f"no memory at {address:#x} to {address + size:#x}")
