"""The phases of a build in their order: which tool does each, what it takes and what it makes.

Whether a phase has to run again is decided by its tool's version, its arguments, what is in its script and in the
files it reads, and the results of the phases it builds on (``needs``). ``gates`` must have passed, but a new result
of theirs does not make an old one of this phase wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from ...hls.build import kernel_files
from . import collect, configure, device_tree
from .layout import ENGINE_VLNV, NAME, TCL, Build
from .tcl import Value

__all__ = ["PHASES", "Phase", "common_scripts", "phases_of"]

SOURCES = ("engine/engine.cpp",)  # below hls
INCLUDED = ("", "include", "include/fastcar")
BENCH = ("tb/engine_tb.cpp",)
TOP = "fastcar_engine"
SYNTHESIZED = "hls/solution/syn/report/csynth.xml"
"""In the project, where the co-simulation and the export find it: without it the synthesis has to be repeated."""

UNCERTAINTY = 0.27
"""Of the period, kept free for routing: what Vitis HLS takes by default (UG1399, set_clock_uncertainty)."""

UNHASHED = frozenset({"jobs"})
"""Arguments that do not change a result."""


@dataclass(frozen=True)
class Phase:
    """``makes``: files below the build's folder that are there afterwards. ``work``: done in Python, before the tool.

    ``tool``: python, hls, vivado or dtc. ``reads``: files whose contents matter, beside the phase's script.
    """

    name: str
    tool: str
    about: str
    makes: tuple[str, ...]
    needs: tuple[str, ...] = ()
    gates: tuple[str, ...] = ()
    arguments: Callable[[Build], dict[str, Value]] = lambda build: {}
    reads: Callable[[Build], list[Path]] = lambda build: []
    work: Callable[[Build], None] | None = None
    applies: Callable[[Build], bool] = lambda build: True

    @property
    def script(self) -> Path | None:
        return TCL / f"{self.name}.tcl" if self.tool in ("hls", "vivado") else None

    def script_of(self, build: Build) -> Path:
        """The script as the tool is told of it."""
        return build.package / "overlays/tcl" / f"{self.name}.tcl"


def phases_of(build: Build) -> tuple[Phase, ...]:
    """Those that this build has, in order."""
    return tuple(phase for phase in PHASES if phase.applies(build))


def common_scripts() -> list[Path]:
    """What the phases' scripts share."""
    own = {phase.script for phase in PHASES}
    return [path for path in sorted(TCL.glob("*.tcl")) if path not in own]


def _hls(build: Build, names: Iterable[str]) -> tuple[Path, ...]:
    return tuple(build.package / "hls" / name for name in names)


def _engine(build: Build) -> dict[str, Value]:
    return {
        "project": build.folder / "hls",
        "top": TOP,
        "part": build.board.device.part,
        "clock_ns": build.clock_ns,
        "uncertainty": build.clock_ns * UNCERTAINTY,
        "sources": _hls(build, SOURCES),
        "headers": (build.config, *_hls(build, INCLUDED)),
    }


def _bench(build: Build) -> dict[str, Value]:
    return {"bench": _hls(build, BENCH), "data": (build.config / configure.GOLDEN,)}


def _engine_files(build: Build) -> list[Path]:
    return [*kernel_files(), *(build.config / name for name in configure.HEADERS)]


def _bench_files(build: Build) -> list[Path]:
    return [*_engine_files(build), *_hls(build, (*BENCH, "tb/bench.h")), build.config / configure.GOLDEN]


def _project(build: Build) -> dict[str, Value]:
    return {"project": build.folder / "vivado"}


def _runs(build: Build) -> dict[str, Value]:
    return {**_project(build), "reports": build.reports, "jobs": build.jobs}


def _block_design(build: Build) -> dict[str, Value]:
    device = build.board.device
    return {
        **_project(build),
        "part": device.part,
        "board_part": device.board_part,
        "ip": build.folder / "ip",
        "design": build.config / configure.DESIGN,
    }


PHASES = (
    Phase(
        "configure",
        "python",
        "headers, block design and golden data of this configuration",
        tuple(f"config/{name}" for name in configure.FILES),
        work=configure.configure,
    ),
    Phase(
        "csim",
        "hls",
        "C simulation of the engine's test bench",
        (),
        gates=("configure",),
        arguments=lambda build: {**_engine(build), **_bench(build)},
        reads=_bench_files,
    ),
    Phase(
        "csynth",
        "hls",
        "C++ to RTL; gate: II of every loop, clock",
        ("reports/csynth.xml", SYNTHESIZED),
        gates=("configure", "csim"),
        arguments=lambda build: {
            **_engine(build),
            "reports": build.reports,
            "directives": (build.config / configure.DIRECTIVES,),
        },
        reads=lambda build: [*_engine_files(build), build.config / configure.DIRECTIVES],
    ),
    Phase(
        "cosim",
        "hls",
        "the same test bench on the RTL",
        ("reports/cosim.rpt",),
        needs=("csynth",),
        arguments=lambda build: {**_engine(build), **_bench(build), "reports": build.reports},
        reads=_bench_files,
    ),
    Phase(
        "export_ip",
        "hls",
        "RTL to an IP for Vivado",
        ("ip/component.xml",),
        needs=("csynth",),
        gates=("cosim",),
        arguments=lambda build: {"project": build.folder / "hls", "ip": build.folder / "ip", "vlnv": ENGINE_VLNV},
    ),
    Phase(
        "block_design",
        "vivado",
        "engine, processor, ports, clock, reset and interrupt connected and validated",
        ("vivado/fastcar.xpr",),
        needs=("export_ip",),
        gates=("configure",),
        arguments=_block_design,
        reads=lambda build: [build.config / configure.DESIGN],
    ),
    Phase(
        "synthesis",
        "vivado",
        "RTL to a netlist",
        ("reports/utilization_synth.rpt", "vivado/post_synth.dcp"),
        needs=("block_design",),
        arguments=_runs,
    ),
    Phase(
        "implementation",
        "vivado",
        "placed and routed; gate: DRC errors, unrouted nets",
        ("vivado/post_route.dcp", *(f"reports/{name}" for name in collect.ROUTED)),
        needs=("synthesis",),
        arguments=_runs,
    ),
    Phase(
        "timing",
        "vivado",
        "gate: no negative slack of setup, hold or pulse width",
        ("reports/timing_gate.rpt",),
        needs=("implementation",),
        arguments=lambda build: {"checkpoint": build.folder / "vivado/post_route.dcp", "reports": build.reports},
    ),
    Phase(
        "bitstream",
        "vivado",
        "bitstream and hardware handoff",
        tuple(f"artifacts/{NAME}{suffix}" for suffix in (".bit", ".hwh", ".xsa")),
        needs=("implementation",),
        gates=("timing",),
        arguments=lambda build: {**_project(build), "artifacts": build.artifacts, "name": NAME},
    ),
    Phase(
        "device_tree",
        "dtc",
        "device tree overlay, to load without PYNQ",
        tuple(f"artifacts/{name}" for name in device_tree.FILES),
        needs=("bitstream",),
        reads=lambda build: [Path(device_tree.__file__)],
        work=device_tree.write_device_tree,
        applies=device_tree.needed,
    ),
    Phase(
        "collect",
        "python",
        "what was built, beside what was estimated",
        (f"artifacts/{collect.OVERLAY}",),
        gates=("csynth", "cosim", "implementation", "timing", "bitstream"),
        work=collect.collect,
    ),
)
