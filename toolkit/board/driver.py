"""The engine's driver: PYNQ binds it to the engine in an overlay by its VLNV."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any, ClassVar

from pynq import DefaultIP

from ...overlays.design import ENGINE, VLNV
from ..program.register_map import CTRL, GIER, IP_IER, IP_ISR, POINTERS, engine_registers
from ..program.registers import CONTROL, REPORT

__all__ = ["EngineDriver", "Stopped", "TimedOut"]

START, DONE, IDLE = 1, 2, 4
SLICE = 0.2  # seconds: after this long without an interrupt the status is read all the same
SHORTEST_PAUSE, LONGEST_PAUSE = 0.0005, 0.02  # seconds between two readings when there is no interrupt
LOST_BEFORE_POLLING = 2
WORD = 0xFFFFFFFF


class TimedOut(Exception):
    """The engine was not done before the deadline."""


class Stopped(Exception):
    """The wait was given up because ``stop`` was called."""


class EngineDriver(DefaultIP):
    """Registers by name, the doorbell, and the wait. Made and used in one thread, whose event loop hears interrupts.

    ``interrupts_lost``: starts that ended without one although the design has an interrupt; after two of them the
    status is polled. ``expected``: seconds the next start will take, as far as known.
    """

    bindto: ClassVar = [VLNV[ENGINE]]

    def __init__(self, description: dict[str, Any]) -> None:
        super().__init__(description)
        offsets = {name: fields["address_offset"] for name, fields in description["registers"].items()}
        self.offsets = {register.name: offsets[register.name] for register in engine_registers()}
        self._pointers = [(self.offsets[f"{name}_1"], self.offsets[f"{name}_2"]) for name in POINTERS]
        self._control = [self.offsets[f"control_{index + 1}"] for index in range(len(CONTROL.words))]
        self._report = [self.offsets[f"report_{index + 1}"] for index in range(len(REPORT.words))]
        self._stop = threading.Event()
        self.interrupts_lost = 0
        self.expected = 0.0

    @property
    def listens(self) -> bool:
        """Whether the wait is for an interrupt."""
        return getattr(self, "interrupt", None) is not None and self.interrupts_lost < LOST_BEFORE_POLLING

    def write_addresses(self, program: int, weights: int, state: int) -> None:
        """Byte addresses of the three buffers, both halves of each (an address may lie above 4 GB)."""
        at = {"program": program, "weights": weights, "tables": weights, "state": state}
        for name, (low, high) in zip(POINTERS, self._pointers, strict=True):
            address = at[name.rstrip("0123")]
            self.write(low, address & WORD)
            self.write(high, address >> 32)

    def run(self, control: dict[str, float], deadline: float) -> tuple[dict[str, int], float]:
        """Ring the doorbell and wait: the report, and the seconds between. TimedOut after ``deadline`` seconds."""
        for offset, word in zip(self._control, CONTROL.pack(**control).tolist(), strict=True):
            self.write(offset, word)
        self._enable_interrupt()
        self._stop.clear()
        began = time.perf_counter()
        self.write(CTRL, START)
        asyncio.get_event_loop().run_until_complete(self._finished(deadline))
        seconds = time.perf_counter() - began
        self.expected = seconds
        return REPORT.unpack([self.read(offset) for offset in self._report]), seconds

    def idle(self) -> bool:
        """Whether the engine could be started now."""
        return self._is_done(self.read(CTRL))

    def stop(self) -> None:
        """End the wait, from another thread; the engine goes on."""
        self._stop.set()

    def dump(self) -> str:
        """Every register, a line each, those of the records under their fields' names."""
        lines = []
        for register in engine_registers():
            offset = self.offsets[register.name]
            name = register.word or register.name
            lines.append(f"0x{offset:03x}  {name:<20} 0x{self.read(offset) & WORD:08x}")
        return "\n".join(lines)

    def _enable_interrupt(self) -> None:
        if self.listens:
            self._clear_interrupt()
            self.write(IP_IER, 1)
            self.write(GIER, 1)

    def _clear_interrupt(self) -> None:
        """Writing a one toggles a bit: only those that are set are written."""
        if status := self.read(IP_ISR) & 3:
            self.write(IP_ISR, status)

    async def _finished(self, deadline: float) -> None:
        end = time.monotonic() + deadline
        listened = heard = False
        while not self._is_done(self.read(CTRL)):
            left = end - time.monotonic()
            if left <= 0:
                raise TimedOut
            if self._stop.is_set():
                raise Stopped
            if self.listens:
                listened, heard = True, await self._hear(min(left, SLICE))
            else:
                pause = min(max(self.expected / 400, SHORTEST_PAUSE), LONGEST_PAUSE)
                await asyncio.sleep(min(left, pause))
        if listened and not heard:
            self.interrupts_lost += 1
        elif heard:
            self.interrupts_lost = 0
        if self.listens:
            self._clear_interrupt()

    async def _hear(self, seconds: float) -> bool:
        try:
            await asyncio.wait_for(self.interrupt.wait(), seconds)
        except asyncio.TimeoutError:
            return False
        return True

    @staticmethod
    def _is_done(control: int) -> bool:
        """DONE goes with the first reading, whoever reads: an engine that is idle again is done as well."""
        return bool(control & DONE) or (bool(control & IDLE) and not control & START)
