"""The engine's AXI-Lite slave with the C simulation behind it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import numpy as np

from ...hls.library import EngineLibrary, SimulationError
from ...toolkit.program.memory import BEAT_BYTES
from ...toolkit.program.register_map import CTRL, GIER, IP_IER, IP_ISR, POINTERS, engine_registers
from ...toolkit.program.registers import CONTROL, REPORT, STATUS
from .faults import Faults
from .memory import BusError, ContiguousMemory
from .registers import RegisterBlock

__all__ = ["EngineBlock"]

START, DONE, IDLE, READY = 1, 2, 4, 8
DESCRIPTOR_BYTES = 64
BAD_TOKEN = next(code for code, (name, _) in STATUS.items() if name == "BAD_TOKEN")


class EngineBlock(RegisterBlock):
    """ap_ctrl_hs (UG1399): a start runs the library in a thread of its own; DONE is cleared by reading it.

    ``trouble``: what stopped a start for ever, as a bus error does on a board.
    """

    def __init__(
        self,
        base: int,
        size: int,
        library: EngineLibrary,
        memory: ContiguousMemory,
        interrupt: Callable[[bool], None],
        faults: Faults,
    ) -> None:
        super().__init__(base, size)
        self.library, self.memory, self.interrupt, self.faults = library, memory, interrupt, faults
        registers = engine_registers()
        self._pointers = [next(r.offset for r in registers if r.name == f"{pointer}_1") for pointer in POINTERS]
        self._control = [register.offset for register in registers if register.name.startswith("control_")]
        self._report = [r.offset for r in registers if r.name.startswith("report_") and r.word]
        self._valid = registers[-1].offset
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None
        self.starts = self.clips = 0
        self.trouble = ""
        self._reset_state()

    def read(self, offset: int) -> int:
        with self._lock:
            if offset == CTRL:
                value = (START if self.busy else IDLE) | (DONE | READY if self.done else 0)
                self.done = False
                return value
            value = self.words.get(offset, 0)
            if offset == self._valid:
                self.words[offset] = 0
            return value

    def write(self, offset: int, value: int) -> None:
        with self._lock:
            if offset == CTRL:
                if value & START and not self.busy:
                    self._start()
            elif offset == IP_ISR:
                self.words[IP_ISR] = self.words.get(IP_ISR, 0) ^ value
            elif offset not in self._report:
                self.words[offset] = value
            self._drive()

    def reset(self, active: bool) -> None:
        """The reset line: a start that runs is dropped, and all registers are as after power-up."""
        if active and not self.faults.no_reset:
            thread, self._thread = self._thread, None
            with self._lock:
                self._reset_state()
                self._drive()
            if thread and thread is not threading.current_thread():
                thread.join()

    def _reset_state(self) -> None:
        self.words: dict[int, int] = {}
        self.busy = self.done = False
        self._run = object()  # names the start in progress: one that was dropped finds another here

    def _start(self) -> None:
        self.starts += 1
        self.busy, self.done = True, False
        self._run = object()
        self._thread = threading.Thread(target=self._work, args=(self._run, self.starts), daemon=True)
        self._thread.start()

    def _work(self, run: object, number: int) -> None:
        began = time.monotonic()
        if number == self.faults.hang:
            return
        try:
            report = self._execute(number)
        except (BusError, SimulationError) as error:
            self.trouble = str(error)
            return
        time.sleep(max(0.0, self.faults.pace - (time.monotonic() - began)))
        with self._lock:
            if self._run is not run:
                return
            self.words.update(zip(self._report, map(int, report), strict=True))
            self.words[self._valid] = 1
            self.busy, self.done = False, True
            self.words[IP_ISR] = self.words.get(IP_ISR, 0) | self.words.get(IP_IER, 0) & 3
            self._drive()

    def _execute(self, number: int) -> np.ndarray:
        words = np.array([self.words.get(offset, 0) for offset in self._control], np.uint32)
        control = CONTROL.unpack(words)
        views = self._views(control)
        if number == self.faults.flip:
            weights = views[1]
            weights[len(weights) // 2] ^= 0x10
        report = self.library.run_at([view.ctypes.data for view in views], words)
        fields = {word.name: index for index, word in enumerate(REPORT.words)}
        if self.faults.build is not None:
            report[fields["build_id"]] = self.faults.build
        if number == self.faults.error:
            report[fields["status"]] = BAD_TOKEN
        if control["descriptors"] and control["position"] == 0:
            self.clips += 1
            if self.faults.leftover and self.clips > 1:
                views[-1][0] ^= 1  # a key of position 0
        return report

    def _views(self, control: dict[str, float]) -> list[np.ndarray]:
        """Memory at each pointer, as far as the control record says it reaches; BusError outside a buffer."""
        sizes = {
            "program": int(control["descriptors"]) * DESCRIPTOR_BYTES,
            "weights": int(control["weight_beats"]) * BEAT_BYTES,
            "tables": int(control["weight_beats"]) * BEAT_BYTES,
            "state": int(control["state_beats"]) * BEAT_BYTES,
        }
        if not sizes["program"]:  # refused before anything is read
            return [np.zeros(BEAT_BYTES, np.uint8)] * len(POINTERS)
        return [
            self.memory.view(self._address(offset), sizes[pointer.rstrip("0123")])
            for pointer, offset in zip(POINTERS, self._pointers, strict=True)
        ]

    def _address(self, offset: int) -> int:
        return self.words.get(offset, 0) | self.words.get(offset + 4, 0) << 32

    def _drive(self) -> None:
        enabled = self.words.get(GIER, 0) & 1 and not self.faults.no_interrupt
        self.interrupt(bool(enabled and self.words.get(IP_IER, 0) & self.words.get(IP_ISR, 0)))
