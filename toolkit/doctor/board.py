"""What a board needs to run an overlay under PYNQ."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ..board.versions import XRT_QUERIES, XRT_VERSION
from .identity import identify
from .machine import Machine
from .model import NOTE, OK, PROBLEM, Check, Probe

__all__ = ["PROBES"]

PROFILE = "/etc/profile.d/pynq_venv.sh"
DRIVERS = f"In a root shell: source {PROFILE} (with Kria-PYNQ; it loads a device tree with zocl), or modprobe zocl."
LOADED = ("operating", "unknown")


def board_name(machine: Machine) -> Iterable[Check]:
    identity = identify(machine)
    if identity is None or identity.board is None:
        model = identity.model if identity else machine.text("proc/device-tree/model")
        fix = "Set BOARD to its name, if there is a board file for it (fastcar boards)."
        yield Check("board", NOTE, f"{model or 'no device tree'}: no board that is known here", fix)
        return
    yield Check("board", OK, f"{identity.board}, by {identity.source} ({identity.model})")


def permissions(machine: Machine) -> Iterable[Check]:
    """PYNQ maps /dev/mem."""
    if machine.user == 0:
        yield Check("permissions", OK, "root")
    else:
        found = f"user {machine.user}: PYNQ maps /dev/mem, which only root may"
        yield Check("permissions", PROBLEM, found, f"In a root shell (sudo -i): source {PROFILE}, then run again.")


def runtime_variable(machine: Machine) -> Iterable[Check]:
    value = machine.environment.get("XILINX_XRT")
    fix = f"export XILINX_XRT=/usr, or source {PROFILE}; a plain sudo drops it, sudo -E keeps it."
    if not value:
        yield Check("XILINX_XRT", PROBLEM, "not set: PYNQ finds no device", fix)
    elif not any(machine.files(f"{value.strip('/')}/{place}/libxrt_core.so*") for place in ("lib*", "lib/*")):
        yield Check("XILINX_XRT", PROBLEM, f"{value}: no libxrt_core.so below its lib", f"apt-get install xrt. {fix}")
    else:
        yield Check("XILINX_XRT", OK, value)


def zocl(machine: Machine) -> Iterable[Check]:
    """XRT's kernel module for embedded devices, and the node it makes."""
    modules = machine.text("proc/modules") or ""
    there = any(line.split()[:1] == ["zocl"] for line in modules.splitlines()) or machine.files("sys/module/zocl")
    nodes = machine.files("dev/dri/renderD*")
    if not there:
        yield Check("zocl", PROBLEM, "the kernel module zocl is not loaded: no buffers, no download", DRIVERS)
    elif not nodes:
        yield Check("zocl", PROBLEM, "loaded, but there is no /dev/dri/renderD*", DRIVERS)
    else:
        yield Check("zocl", OK, f"loaded, {', '.join(f'/dev/dri/{node.name}' for node in nodes)}")


def runtime_version(machine: Machine) -> Iterable[Check]:
    for query in XRT_QUERIES:
        if found := XRT_VERSION.search(machine.run(query) or ""):
            yield Check("XRT", OK, found[1])
            return
    yield Check("XRT", NOTE, "neither xbutil nor dpkg tells its version", "apt-get install xrt, if it is missing.")


def fpga_manager(machine: Machine) -> Iterable[Check]:
    folder = "sys/class/fpga_manager/fpga0"
    state = machine.text(f"{folder}/state")
    fix = "Boot the kernel of the board's image (AMD's, 5.15.0-xilinx-zynqmp or alike)."
    if state is None:
        yield Check("FPGA manager", PROBLEM, f"no /{folder}: no bitstream can be loaded", fix)
    elif not machine.files(f"{folder}/firmware"):
        found = f"/{folder} has no file `firmware`, by which PYNQ knows a device"
        yield Check("FPGA manager", PROBLEM, found, fix)
    elif state not in LOADED:
        fix = "Load the overlay again; if it stays, power the board off and on, and look at dmesg."
        yield Check("FPGA manager", PROBLEM, f"in state {state!r}: the last bitstream was not loaded", fix)
    else:
        note = "a bitstream is loaded" if state == "operating" else "no bitstream yet"
        yield Check("FPGA manager", OK, f"{state}: {note}")


def firmware(machine: Machine) -> Iterable[Check]:
    """The Kria's own applications, where its tool is there."""
    if machine.program("xmutil") is None:
        return
    said = machine.run(["xmutil", "listapps"])
    if said is None:
        yield Check("firmware", NOTE, "`xmutil listapps` does not answer", "As root; see: systemctl status dfx-mgr")
        return
    # The last column: 0->0 (newer) or 0, (older) for a loaded application, -1 for the others; rows may be wrapped.
    loaded = [line.split()[0] for line in said.splitlines() if re.search(r"\d->\d|\s\d+,\s*$", line)]
    if loaded:
        name = loaded[0] if loaded[0][0].isalpha() else "an application"
        fix = "PYNQ replaces it; if a download fails: sudo xmutil unloadapp"
        yield Check("firmware", NOTE, f"{name} is loaded", fix)
    else:
        yield Check("firmware", OK, "no application of the board's own is loaded")


def interrupts(machine: Machine) -> Iterable[Check]:
    """PYNQ hears them through UIO devices that the device tree makes."""
    files = machine.files("sys/class/uio/uio*/name")
    names = [machine.text(str(file.relative_to(machine.root))) for file in files]
    if names:
        yield Check("UIO devices", OK, ", ".join(filter(None, names)))
    else:
        fix = f"source {PROFILE} in a root shell, or boot with uio_pdrv_genirq.of_id=generic-uio."
        yield Check("UIO devices", NOTE, "none: the end of a frame is polled, not heard", fix)


def clocks(machine: Machine) -> Iterable[Check]:
    files = machine.files("sys/kernel/debug/clk/pl[0-3]*/clk_rate")
    rates = [(file.parent.name, machine.text(str(file.relative_to(machine.root)))) for file in files]
    told = [f"{name} {int(rate) / 1e6:.3f} MHz" for name, rate in rates if rate and rate.isdigit()]
    if told:
        yield Check("clocks of the logic", OK, ", ".join(told))
    else:
        yield Check("clocks of the logic", NOTE, "not readable here (only for root, with debugfs)")


PROBES: tuple[Probe, ...] = (
    board_name,
    permissions,
    runtime_variable,
    zocl,
    runtime_version,
    fpga_manager,
    firmware,
    interrupts,
    clocks,
)
