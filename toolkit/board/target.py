"""The device to run on: the board's own, or the emulated one, opened by name."""

from __future__ import annotations

import os
import tempfile
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...boards import load_board
from ...overlays.bitfile import write_emulated_bitfile
from ...overlays.design import BlockDesign
from ...overlays.hwh import handoff_text
from ..bundle.bundle import Bundle
from ..errors import DeviceError, UsageError
from .meminfo import contiguous_memory

__all__ = ["DEVICES", "Target", "open_target"]

DEVICES = "board, or emulated[:FAULT,...]"
NO_BOARD = "Run on the board, as root, with XILINX_XRT=/usr (fastcar doctor tells what is missing)."


@dataclass
class Target:
    """``device``: of pynq. ``bit``: the overlay to load; ``emulated`` tells the two kinds apart."""

    device: Any
    bit: Path
    emulated: bool
    _folder: tempfile.TemporaryDirectory | None = field(default=None, repr=False)

    @property
    def tag(self) -> str:
        """Names the device for all processes of the machine."""
        return self.device.name if self.emulated else str(getattr(self.device, "tag", "board"))

    def close(self) -> None:
        """Remove what was made for the occasion; an overlay that was given stays."""
        if self._folder is not None:
            self._folder.cleanup()

    def contiguous_memory(self) -> tuple[int, int] | None:
        """(free, total) bytes; None where the system does not tell."""
        if self.emulated:
            return self.device.memory.free, self.device.memory.size
        return contiguous_memory()


def open_target(name: str, bundle: Bundle, overlay: Path | None) -> Target:
    """``name``: one of DEVICES. UsageError for another, or no ``overlay`` for a board; DeviceError if there is none."""
    kind, _, faults = name.partition(":")
    if kind == "emulated":
        return _emulated(bundle, overlay, faults)
    if kind != "board" or faults:
        raise UsageError("--device", repr(name), DEVICES, "Choose one of these.")
    if overlay is None:
        raise UsageError("--overlay", "none", "the bitstream (.bit) to load on the board", "Give --overlay FILE.")
    return Target(_board(), overlay, emulated=False)


def _board() -> Any:
    pynq = _import_pynq()
    with warnings.catch_warnings(record=True) as caught:  # the reason is in the warning, not in an error
        warnings.simplefilter("always")
        devices = pynq.Device.devices
        if not devices:
            reason = "; ".join(str(warning.message) for warning in caught) or "none found"
            raise DeviceError("pynq", f"no device ({reason.splitlines()[0]})", "a board with its runtime", NO_BOARD)
        return pynq.Device.active_device


def _emulated(bundle: Bundle, overlay: Path | None, faults: str) -> Target:
    """Of the engine and board the bundle is packed for; without an overlay, its files are made for the occasion."""
    from ...overlays.emulated.faults import parse_faults

    wanted = parse_faults(faults)
    _import_pynq()
    from ...hls.library import EngineLibrary
    from ...overlays.emulated.device import EmulatedDevice

    manifest = bundle.manifest
    bundle.require_packed()
    engine = manifest.engine
    design = BlockDesign(load_board(manifest.board), engine.name, engine.build_id, engine.clock_mhz)
    device = EmulatedDevice(design, EngineLibrary(engine), wanted)
    if overlay is not None:
        return Target(device, overlay, emulated=True)
    folder = tempfile.TemporaryDirectory(prefix="fastcar-overlay-")
    bit = Path(folder.name) / f"{design.name}.bit"
    write_emulated_bitfile(bit, design)
    bit.with_suffix(".hwh").write_text(handoff_text(design), "utf-8")
    return Target(device, bit, emulated=True, _folder=folder)


def _import_pynq() -> Any:
    """Without a board the variable makes some versions look for a library that is not there."""
    if os.environ.get("XILINX_XRT") and not Path(os.environ["XILINX_XRT"]).is_dir():
        found = f"{os.environ['XILINX_XRT']!r}, which does not exist"
        raise DeviceError("XILINX_XRT", found, "/usr on a board, unset elsewhere", "Correct it.")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its own use of old interfaces, which python -W error would end here
        import pynq

    return pynq
