"""An overlay loaded and held: the lock, the checks before the download, the driver's thread, the buffers."""

from __future__ import annotations

import asyncio
import time
import warnings
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from contextlib import suppress
from typing import Any, TypeVar

import pynq

from ...overlays.design import ENGINE, RESET
from ..bundle.bundle import Bundle
from ..errors import DeviceError, FastCarError, OverlayError
from ..program.packed import PROGRAM, WEIGHTS
from ..program.plan import MemoryPlan
from ..program.registers import CONTROL, STATUS
from .buffers import DeviceBuffer
from .check import check_memory, check_overlay
from .driver import EngineDriver, Stopped, TimedOut
from .lock import DeviceLock
from .target import Target
from .versions import check_pynq, xrt_version

__all__ = ["Session"]

Result = TypeVar("Result")

PROBE = {word.name: 0 for word in CONTROL.words}  # no descriptors: refused before any access, but answered
PROBE_DEADLINE = 5.0  # seconds
LONGEST_REST = 30.0  # seconds for the start in progress to end after Ctrl-C
RELOAD = "Run again: that loads the overlay afresh; if it comes back, power the board off and on."


class Session:
    """Everything that outlives a clip. ``plan``: the contiguous memory the first clip needs.

    All that touches registers runs in one thread with an event loop of its own, so that interrupts are heard in
    notebooks too, where the main thread's loop is taken. OverlayError and DeviceError before the download if the parts
    do not match, memory is short or another session holds the device; nothing is held then.
    """

    def __init__(self, bundle: Bundle, target: Target, plan: MemoryPlan) -> None:
        self.target, self.bundle = target, bundle
        self.packed, self.engine = bundle.require_packed(), bundle.manifest.engine
        check_pynq()
        self.lock = DeviceLock(target.tag)
        self.thread = ThreadPoolExecutor(1, "fastcar-device", initializer=_own_event_loop)
        self.buffers: dict[str, DeviceBuffer] = {}
        self.state_address = 0
        self._xrt = None if target.emulated else xrt_version()
        try:
            _, self.handoff = check_overlay(target.bit, self.engine)
            if memory := target.contiguous_memory():
                check_memory(plan, *memory)
            pynq.Device.active_device = target.device
            self.overlay = self._load()
            self.driver = self._open_driver()
            self.probe()
            self._fill()
        except BaseException:
            self.close()
            raise

    @property
    def facts(self) -> dict[str, Any]:
        """What ran: for the record of a clip."""
        return {
            "device": "emulated" if self.target.emulated else "board",
            "overlay": self.target.bit.name,
            "build_id": f"{self.engine.build_id:08x}",
            "engine": self.engine.name,
            "pynq": pynq.__version__,
            "xrt": self._xrt,
            "clock_mhz": round(float(pynq.ps.Clocks.fclk0_mhz), 3),
            "built_for_mhz": self.handoff.clock_mhz,
            "waits_for": "interrupt" if self.driver.listens else "polling",
            "interrupts_lost": self.driver.interrupts_lost,
        }

    def call(self, function: Callable[[], Result], on_interrupt: Callable[[], None] | None = None) -> Result:
        """Run in the device's thread; Ctrl-C here ends it there by ``on_interrupt`` first."""
        future: Future[Result] = self.thread.submit(function)
        try:
            return future.result()
        except KeyboardInterrupt:
            if on_interrupt:
                on_interrupt()
                _settled(future)
            raise

    def run(self, control: dict[str, float], deadline: float) -> tuple[dict[str, int], float]:
        """One start of the engine. DeviceError with the registers if it does not end, or ends with an error
        or as another engine.

        An engine that does not end is reset, so that the next start finds it usable.
        """
        if not self.overlay.is_loaded():
            raise DeviceError("overlay", "another one was loaded since", "the engine's", RELOAD)
        try:
            report, seconds = self.call(lambda: self.driver.run(control, deadline), self.driver.stop)
        except TimedOut:
            raise self._hung(control, deadline) from None
        except Stopped:
            raise KeyboardInterrupt from None
        except KeyboardInterrupt:
            self._let_finish()
            raise
        if report["status"]:
            name, meaning = STATUS.get(report["status"], (f"{report['status']:#x}", "not a code of this engine"))
            dump = self.call(self.driver.dump)
            raise DeviceError("engine", f"error {name} ({meaning})", "DONE", "Check: fastcar selftest.", dump)
        if report["build_id"] != self.engine.build_id:
            raise self._other_build(DeviceError, report["build_id"])
        return report, seconds

    def probe(self) -> None:
        """Ask the engine for its build id, by a start that it refuses: OverlayError if it is another's.

        DeviceError if it does not answer. Also shows that doorbell, status and interrupt work.
        """
        if not self.call(self.driver.idle):
            self.reset()
        try:
            report, _ = self.call(lambda: self.driver.run(PROBE, PROBE_DEADLINE), self.driver.stop)
        except TimedOut:
            dump = self.call(self.driver.dump)
            found = f"no answer within {PROBE_DEADLINE:g} s"
            raise DeviceError("engine", found, "the build id", "Is this overlay built for this board?", dump) from None
        if report["build_id"] != self.engine.build_id:
            raise self._other_build(OverlayError, report["build_id"])

    def reset(self) -> bool:
        """Hold the engine in reset for a moment; whether the design can, and it was idle afterwards."""
        if RESET not in self.overlay.ip_dict:
            return False

        def pulse() -> bool:
            line = getattr(self.overlay, RESET)
            line.write(0, 0)
            line.write(0, 1)
            self.driver.write_addresses(*self._addresses())
            return self.driver.idle()

        return self.call(pulse)

    def verify_memory(self) -> None:
        """DeviceError unless program and weights in the device's memory have the bundle's hashes."""
        for name, buffer in self.buffers.items():
            try:
                buffer.verify(self.bundle.manifest.files[name].sha256)
            except DeviceError as error:
                error.dump = self.call(self.driver.dump)
                raise

    def set_state(self, buffer: DeviceBuffer) -> None:
        self.state_address = buffer.address
        self.call(lambda: self.driver.write_addresses(*self._addresses()))

    def close(self) -> None:
        """Free the buffers and let others use the device."""
        for buffer in self.buffers.values():
            buffer.free()
        self.buffers = {}
        self.thread.shutdown()
        self.lock.release()
        self.target.close()

    def _load(self) -> Any:
        """The overlay, downloaded. OverlayError if PYNQ answers from an older description of the same name."""
        bit = self.target.bit
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # interrupts without a device of their own are polled
                overlay = self.call(lambda: pynq.Overlay(str(bit.resolve()), device=self.target.device))
        except FastCarError:
            raise
        except Exception as error:  # its parser raises what it comes across in a description that is damaged
            raise self._unusable("PYNQ cannot load it", error) from error
        registers = overlay.ip_dict.get(ENGINE, {}).get("registers", {})
        if {name: fields["address_offset"] for name, fields in registers.items()} != self.handoff.registers:
            raise OverlayError(
                bit,
                "PYNQ describes another design",
                f"that of {self.handoff.path.name}",
                "Its description is an older one that was kept: delete _current_metadata.pkl of pynq and load again.",
            )
        return overlay

    def _open_driver(self) -> EngineDriver:
        try:
            driver = self.call(lambda: getattr(self.overlay, ENGINE))
        except Exception as error:  # as above: addresses and interrupts are looked up here
            raise self._unusable("PYNQ cannot open its engine", error) from error
        if not isinstance(driver, EngineDriver):
            kind = type(driver).__name__
            raise OverlayError(self.target.bit, f"its engine got driver {kind}", "EngineDriver", "Build it again.")
        return driver

    def _unusable(self, what: str, error: Exception) -> DeviceError:
        found = f"{what}: {type(error).__name__}: {error}"
        fix = f"Copy it again, with {self.handoff.path.name}; if that does not help, look with: fastcar doctor."
        return DeviceError(self.target.bit, found, "an overlay of this board", fix)

    def _fill(self) -> None:
        for name, content in ((PROGRAM, self.packed.program), (WEIGHTS, self.packed.weights)):
            self.buffers[name] = DeviceBuffer(self.target.device, name, content.nbytes)
            self.buffers[name].fill(content)
        self.verify_memory()

    def _addresses(self) -> tuple[int, int, int]:
        known = [self.buffers[name].address if name in self.buffers else 0 for name in (PROGRAM, WEIGHTS)]
        return known[0], known[1], self.state_address

    def _hung(self, control: dict[str, float], deadline: float) -> DeviceError:
        dump = self.call(self.driver.dump)
        fix = "The engine was reset and can be used again." if self.reset() else RELOAD
        found = f"not done {deadline:g} s after a start of {control['steps']} steps"
        expected = "the end of the start (--deadline SECONDS allows more)"
        return DeviceError("engine", found, expected, fix, dump)

    def _let_finish(self) -> None:
        """After Ctrl-C the engine is still at work: a start's time to end by itself, for a reset may cut a burst."""
        end = time.monotonic() + LONGEST_REST
        while not self.call(self.driver.idle):
            if time.monotonic() > end:
                self.reset()
                return
            time.sleep(0.01)

    def _other_build(self, kind: type[FastCarError], found: int) -> FastCarError:
        """OverlayError when it is asked for, DeviceError when a start of a clip answers so."""
        return kind(
            self.target.bit,
            f"the engine answers with build {found:08x}",
            f"build {self.engine.build_id:08x}, which .hwh and bundle say",
            "Bitstream and handoff are of different builds: copy both again.",
            self.call(self.driver.dump),
        )


def _own_event_loop() -> None:
    asyncio.set_event_loop(asyncio.new_event_loop())


def _settled(future: Future[Any]) -> None:
    """Wait for the end of a call that was told to stop."""
    with suppress(NotYet, KeyboardInterrupt):
        future.exception(timeout=PROBE_DEADLINE)
