"""What a workstation needs beside Python packages: a compiler, ssh and rsync, AMD's tools. All of it is optional."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from ...hls.build import arithmetic_headers, cache_folder
from ..errors import UsageError
from .machine import Machine
from .model import NOTE, OK, PROBLEM, Check, Probe

__all__ = ["PROBES"]

ENGINE_BYTES = 64 << 20  # far above what a compiled engine takes


def compiler(machine: Machine) -> Iterable[Check]:
    """For `fastcar csim`, `--backend csim` and the emulated device."""
    name = machine.environment.get("CXX") or "g++"
    if machine.program(name) is None:
        yield Check("C++ compiler", NOTE, f"no {name}: no C simulation", "apt-get install g++, or set CXX.")
        return
    said = machine.run([name, "--version"])
    if said is None:
        yield Check("C++ compiler", PROBLEM, f"{name} does not tell its version", "Install g++ 9 or newer.")
    else:
        yield Check("C++ compiler", OK, (said.splitlines() or [name])[0])


def headers(machine: Machine) -> Iterable[Check]:
    try:
        yield Check("arithmetic headers", OK, str(arithmetic_headers()))
    except UsageError as error:
        wrong = PROBLEM if "FASTCAR_AP_TYPES" in machine.environment else NOTE
        yield Check("arithmetic headers", wrong, f"{error.found}: no C simulation", error.fix)


def compiled_engines(machine: Machine) -> Iterable[Check]:
    """The cache, or the folder it will be made in."""
    cache = cache_folder()
    place = next(folder for folder in (cache, *cache.parents) if folder.exists())
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        yield Check("compiled engines", PROBLEM, f"{cache} cannot be written", "Set XDG_CACHE_HOME to another folder.")
    elif machine.disk_free(place) < ENGINE_BYTES:
        fix = "Free some space, or set XDG_CACHE_HOME to a folder on another disk."
        yield Check("compiled engines", PROBLEM, f"{cache}: the disk is full", fix)
    else:
        yield Check("compiled engines", OK, f"{cache} can be written")


def runtime_variable(machine: Machine) -> Iterable[Check]:
    """PYNQ takes XILINX_XRT for a sign of a card with its runtime, and looks for libraries that are not there."""
    value = machine.environment.get("XILINX_XRT")
    if not value:
        yield Check("XILINX_XRT", OK, "not set, as it is to be without a board")
    elif machine.packages.version("pynq") is None:
        yield Check("XILINX_XRT", NOTE, f"{value}; PYNQ is not installed, so nothing reads it here")
    else:
        found = f"{value}, on a computer that is no board: PYNQ may fail to import"
        yield Check("XILINX_XRT", PROBLEM, found, "unset XILINX_XRT")


def deployment(machine: Machine) -> Iterable[Check]:
    missing = [name for name in ("ssh", "rsync") if machine.program(name) is None]
    packages = {"ssh": "openssh-client", "rsync": "rsync"}
    if missing:
        fix = f"apt-get install {' '.join(packages[name] for name in missing)}"
        yield Check("deployment", NOTE, f"no {' and no '.join(missing)}: no `fastcar deploy`", fix)
    else:
        yield Check("deployment", OK, "ssh and rsync are there")


def vendor_tools(machine: Machine) -> Iterable[Check]:
    """Only building an overlay needs them."""
    names = ("vivado", "vitis_hls", "vitis-run")
    found = [path for name in names if (path := machine.program(name))]
    variables = [name for name in ("XILINX_VIVADO", "XILINX_HLS", "XILINX_VITIS") if machine.environment.get(name)]
    gone = [name for name in variables if not Path(machine.environment[name]).is_dir()]
    if gone:
        missing = f"{gone[0]} is {machine.environment[gone[0]]}, which does not exist"
        fix = f"Source the tools' settings64.sh again, or unset {gone[0]}."
        yield Check("AMD Vivado and Vitis", PROBLEM, missing, fix)
    elif found:
        yield Check("AMD Vivado and Vitis", OK, ", ".join(found))
    else:
        fix = "Source settings64.sh of an installation, if you want to build an overlay."
        yield Check("AMD Vivado and Vitis", NOTE, "not on the path: no overlay can be built here", fix)


PROBES: tuple[Probe, ...] = (compiler, headers, compiled_engines, runtime_variable, deployment, vendor_tools)
