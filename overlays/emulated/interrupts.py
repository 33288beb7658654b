"""The interrupt path: an AXI interrupt controller, and what stands in for the kernel's userspace I/O device."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from .registers import RegisterBlock

__all__ = ["InterruptController", "UserInterrupt"]

STATUS, PENDING, ENABLE, ACKNOWLEDGE, SET, CLEAR, MASTER = 0x00, 0x04, 0x08, 0x0C, 0x10, 0x14, 0x1C  # PG099


class InterruptController(RegisterBlock):
    """AXI INTC with level inputs that are latched until acknowledged (PG099)."""

    def __init__(self, base: int, size: int, output: Callable[[bool], None]) -> None:
        super().__init__(base, size)
        self.output = output
        self.lines = self.status = self.enabled = self.master = 0

    def drive(self, line: int, level: bool) -> None:
        self.lines = self.lines | 1 << line if level else self.lines & ~(1 << line)
        self._update()

    def read(self, offset: int) -> int:
        words = {
            STATUS: self.status,
            PENDING: self.status & self.enabled,
            ENABLE: self.enabled,
            MASTER: self.master,
        }
        return words.get(offset, 0)

    def write(self, offset: int, value: int) -> None:
        if offset == ENABLE:
            self.enabled = value
        elif offset == ACKNOWLEDGE:
            self.status &= ~value
        elif offset == SET:
            self.enabled |= value
        elif offset == CLEAR:
            self.enabled &= ~value
        elif offset == MASTER:
            self.master = value
        self._update()

    def _update(self) -> None:
        self.status |= self.lines
        self.output(bool(self.status & self.enabled and self.master & 1))


class UserInterrupt:
    """In the place of ``pynq.uio.UioController``: wakes the events that wait when the line is high.

    The line may rise in another thread than the one whose event loop waits.
    """

    def __init__(self) -> None:
        self.level = False
        self._events: list[Any] = []
        self._loop: asyncio.AbstractEventLoop | None = None

    def drive(self, level: bool) -> None:
        self.level = level
        if level and self._loop and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake)

    def add_event(self, event: Any, number: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._events.append(event)
        if self.level:
            self._loop.call_soon(self._wake)

    def _wake(self) -> None:
        if self.level:
            events, self._events = self._events, []
            for event in events:
                event.set()
