"""Memory, disk, temperature and power of a board, against what a bundle needs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ...boards import load_board
from ..board.fit import clip_memory, fit_bundle
from ..board.meminfo import advice, contiguous_memory
from ..board.power_sources import open_power_sources
from ..bundle.bundle import Bundle
from .identity import identify
from .machine import Machine
from .model import NOTE, OK, PROBLEM, Check, Probe

__all__ = ["PROBES", "bundle_probe"]

MIB = 1 << 20
LEAST_MEMORY, LEAST_DISK = 256 * MIB, 256 * MIB  # a clip's pictures and records, with room to spare
WARM, HOT = 85.0, 100.0  # degrees Celsius; DS925: a device of extended grade works up to 100 at its junction
SENSED = (1.0, 150.0)  # what a sensor that works can say


def contiguous(machine: Machine) -> Iterable[Check]:
    memory = contiguous_memory(machine.root / "proc/meminfo")
    if memory is None:
        fix = "Boot a kernel with CONFIG_CMA, as the board's images have."
        yield Check("contiguous memory", PROBLEM, "the kernel tells of none: PYNQ can allocate nothing", fix)
        return
    free, total = memory
    if total == 0:
        fix = (
            "Boot with a smaller cma=, such as cma=512M (with Ubuntu for Kria in /etc/default/flash-kernel, followed "
            "by `sudo flash-kernel`): a reservation that fails leaves nothing, not even for a bitstream."
        )
        yield Check("contiguous memory", PROBLEM, "none was reserved (CmaTotal is 0)", fix)
    else:
        yield Check("contiguous memory", OK, f"{free / MIB:.0f} MiB free of {total / MIB:.0f} MiB")


def memory(machine: Machine) -> Iterable[Check]:
    lines = (machine.text("proc/meminfo") or "").splitlines()
    available = next((line.split()[1] for line in lines if line.startswith("MemAvailable:")), "")
    if not available.isdigit():
        yield Check("memory", NOTE, "the kernel does not tell")
        return
    size = int(available) << 10
    low = size < LEAST_MEMORY
    fix = "End other programs (a desktop takes most of 1 GB: sudo systemctl isolate multi-user.target)." if low else ""
    yield Check("memory", PROBLEM if low else OK, f"{size / MIB:.0f} MiB available", fix)


def disk(machine: Machine) -> Iterable[Check]:
    free = machine.disk_free(Path.cwd())
    low = free < LEAST_DISK
    fix = "Free some space, or work in a folder on another disk." if low else ""
    yield Check("disk", PROBLEM if low else OK, f"{free / MIB:,.0f} MiB free here", fix)


def temperature(machine: Machine) -> Iterable[Check]:
    """The highest of the kernel's thermal zones and hwmon's temperatures, in thousandths of a degree."""
    files = machine.files("sys/class/thermal/thermal_zone*/temp") + machine.files("sys/class/hwmon/hwmon*/temp*_input")
    degrees = [_number(machine.text(str(file.relative_to(machine.root)))) / 1000 for file in files]
    sensed = [value for value in degrees if SENSED[0] < value < SENSED[1]]
    if not sensed:
        yield Check("temperature", NOTE, "no sensor tells it")
        return
    found = f"{max(sensed):.0f} degrees Celsius"
    fix = "Give it a fan, or let it cool down."
    if max(sensed) >= HOT:
        yield Check("temperature", PROBLEM, found, fix)
    elif max(sensed) >= WARM:
        yield Check("temperature", NOTE, found, fix)
    else:
        yield Check("temperature", OK, found)


def power(machine: Machine) -> Iterable[Check]:
    """From files only: PYNQ's own rails are asked when a clip is generated."""
    sources = open_power_sources(machine.root, rails=dict)
    if sources is None:
        yield Check("power sensors", NOTE, "none found in hwmon or IIO: energy is not measured, unless PYNQ has rails")
        return
    names = ", ".join(rail.name for rail in sources.counted)
    watts = sum(rail.watts() for rail in sources.counted)
    yield Check("power sensors", OK, f"{sources.basis}: {names} ({sources.label}), {watts:.2f} W now")


def bundle_probe(bundle: Bundle) -> Probe:
    """Whether the board has an engine and memory for a whole clip of the bundle, by what is free now."""

    def bundle_here(machine: Machine) -> Iterable[Check]:
        name = f"bundle {bundle.path.name}"
        identity = identify(machine)
        if identity is None or identity.board is None:
            yield Check(name, NOTE, "the board is not known, nor what fits on it", "Set BOARD to its name.")
            return
        fit = fit_bundle(bundle, load_board(identity.board))
        if not fit.engines:
            yield Check(name, PROBLEM, "; ".join(fit.reasons), "Use another bundle, or another board.")
        elif fit.packed_for is None:
            steps = [step for step in fit.steps if step.startswith("export")]
            yield Check(name, PROBLEM, f"not packed for {identity.board}", f"On the workstation: {steps[0]}.")
        else:
            yield Check(name, OK, f"packed for engine {fit.packed_for}")
            yield from _room(machine, clip_memory(bundle, bundle.manifest.engine).total)

    return bundle_here


def _room(machine: Machine, needed: int) -> Iterable[Check]:
    """Against what is free now."""
    free, total = contiguous_memory(machine.root / "proc/meminfo") or (0, 0)
    found = f"{needed / MIB:.1f} MiB for a clip with guidance, {free / MIB:.0f} MiB free"
    if needed <= free:
        yield Check("memory for the bundle", OK, found)
    else:
        yield Check("memory for the bundle", PROBLEM, found, advice(needed, total))


def _number(text: str | None) -> float:
    try:
        return float(text or "")
    except ValueError:
        return 0.0


PROBES: tuple[Probe, ...] = (contiguous, memory, disk, temperature, power)
