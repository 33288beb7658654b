"""Contiguous buffers: program and weights filled once and compared by hash, state a clip's own."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pynq

from ..errors import DeviceError
from ..program.memory import BEAT_BYTES
from ..program.plan import MINIMUM_BYTES
from .meminfo import advice

__all__ = ["DeviceBuffer"]

PIECE = 1 << 24  # bytes copied at a time


class DeviceBuffer:
    """``size`` bytes (at least the smallest buffer that is safe) of the device's memory, cached by the processor."""

    def __init__(self, device: Any, name: str, size: int) -> None:
        self.name, self.size = name, size
        try:
            self.buffer = pynq.allocate(max(size, MINIMUM_BYTES), np.uint8, target=device, cacheable=1)
        except (MemoryError, RuntimeError, OSError) as error:
            raise DeviceError(
                "contiguous memory", f"no {size} bytes in one piece for {name} ({error})", "room", advice(size, 0)
            ) from error

    @property
    def address(self) -> int:
        """Byte address on the bus."""
        return self.buffer.device_address

    @property
    def beats(self) -> np.ndarray:
        """(beats, 16) uint8: the processor's view."""
        return np.asarray(self.buffer)[: self.size].reshape(-1, BEAT_BYTES)

    def part(self, first: int, beats: int) -> Any:
        """Some beats as a buffer of their own: to flush or invalidate just these."""
        return self.buffer[first * BEAT_BYTES : (first + beats) * BEAT_BYTES]

    def fill(self, content: np.ndarray) -> None:
        """Copy ``size`` bytes into the device's memory."""
        flat = content.reshape(-1).view(np.uint8)
        target = np.asarray(self.buffer)
        for first in range(0, self.size, PIECE):
            target[first : first + PIECE][: self.size - first] = flat[first : first + PIECE]
        self.buffer.flush()

    def verify(self, sha256: str) -> None:
        """DeviceError unless the device's memory holds what has this hash: read back, not the processor's copy."""
        self.buffer.invalidate()
        found = hashlib.sha256(memoryview(np.asarray(self.buffer)[: self.size])).hexdigest()
        if found != sha256:
            raise DeviceError(
                f"{self.name} in the device's memory",
                f"sha256 {found[:12]}...",
                f"{sha256[:12]}..., as in the bundle",
                "Memory was overwritten or is faulty: start again, and test the memory if it comes back.",
            )

    def free(self) -> None:
        """Let go of it: freed when its last view is gone, since some versions of PYNQ unmap twice when told to free."""
        self.buffer = None
