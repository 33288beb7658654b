"""Before a download: do bitstream, handoff and bundle belong together, and is there memory for the clip."""

from __future__ import annotations

from pathlib import Path

from ...overlays.bitfile import Bitfile, read_bitfile
from ...overlays.design import build_id_of_name
from ...overlays.hwh import Handoff, read_handoff
from ..errors import DeviceError, OverlayError
from ..program.engine import EngineConfig
from ..program.plan import MemoryPlan
from ..program.register_map import ADDRESS_RANGE, engine_registers
from .meminfo import advice

__all__ = ["check_memory", "check_overlay"]

MIB = 1 << 20


def check_overlay(bit: Path, engine: EngineConfig) -> tuple[Bitfile, Handoff]:
    """What the two files say; OverlayError unless both are of the engine's build and the handoff has its registers."""
    bitfile = read_bitfile(bit)
    handoff = read_handoff(bit.with_suffix(".hwh"))
    wanted = f"build {engine.build_id:08x}, which the bundle is packed for"
    builds = {path: build_id_of_name(name) for path, name in ((bit, bitfile.design), (handoff.path, handoff.design))}
    if builds[bit] != builds[handoff.path]:
        raise OverlayError(
            handoff.path,
            f"of design {handoff.design!r}",
            f"the handoff of {bitfile.design!r} in {bit.name}",
            "Copy .bit and .hwh of the same build, under the same name.",
        )
    if builds[bit] is None or len(handoff.engines) != 1:
        raise OverlayError(bit, f"design {bitfile.design!r} holds no decode engine", wanted, "Give another --overlay.")
    if builds[bit] != engine.build_id:
        fix = f"Export the bundle for this overlay, or give the overlay of engine {engine.name}."
        raise OverlayError(bit, f"build {builds[bit]:08x}", wanted, fix)
    _check_registers(handoff)
    return bitfile, handoff


def _check_registers(handoff: Handoff) -> None:
    """Each has a word of its own within the engine's range: whoever asks elsewhere hangs the bus."""
    taken: dict[int, str] = {}
    for register in engine_registers():
        offset = handoff.registers.get(register.name)
        if offset is None:
            found = f"no register {register.name}"
            raise OverlayError(handoff.path, found, "all of the engine's", "Build the overlay again.")
        if offset % 4 or not 0 <= offset < ADDRESS_RANGE or taken.setdefault(offset, register.name) != register.name:
            found, fix = f"register {register.name} at offset {offset:#x}", "Copy the .hwh again, or build it again."
            raise OverlayError(handoff.path, found, f"a word of its own below {ADDRESS_RANGE:#x}", fix)


def check_memory(plan: MemoryPlan, free: int, total: int) -> None:
    """DeviceError, with both numbers and how to get more, if the plan needs more contiguous memory than is free."""
    if plan.total <= free:
        return
    parts = ", ".join(f"{name} {size / MIB:.1f}" for name, size in vars(plan).items())
    raise DeviceError(
        "contiguous memory",
        f"{free / MIB:.1f} MiB free of {total / MIB:.1f} MiB",
        f"{plan.total / MIB:.1f} MiB ({parts})",
        advice(plan.total, total),
    )
