"""``overlay.json``: what was built, from the tools' own reports, beside what this project estimated.

Artifacts and reports of another build, part or top level are refused: a folder may have been copied together. So are
reports of a failure: the scripts stop at one, and this is the last place to notice that one of them did not.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ...hls.resources import RESOURCES, estimate_on, total
from ...toolkit.bundle.manifest import file_entry
from ...toolkit.errors import FastCarError, OverlayError
from ...toolkit.output import replacing
from ...toolkit.planner.energy import power as planned_power
from ...toolkit.program.register_map import engine_registers
from ..bitfile import read_bitfile
from ..design import build_id_of_name
from ..hwh import read_handoff
from .errors import ReportError
from .layout import Build
from .reports_hls import Synthesis, read_cosim, read_csynth
from .reports_timing import Timing, read_timing
from .reports_vivado import Report, read_drc, read_power, read_route, read_utilization

__all__ = ["OVERLAY", "ROUTED", "collect", "read_overlay"]

OVERLAY = "overlay.json"
UTILIZATION, TIMING, POWER, DRC, ROUTE = ROUTED = (
    "utilization_placed.rpt",
    "timing_summary_routed.rpt",
    "power_routed.rpt",
    "drc_routed.rpt",
    "route_status.rpt",
)
"""Reports of the routed design."""
FORMAT = 1
BUILT = (".bit", ".hwh", ".xsa", ".dtbo", ".dts")


def collect(build: Build) -> None:
    """Write ``OVERLAY`` beside the bitstream.

    ReportError or OverlayError if a report or an artifact is missing, damaged, or of another build.
    """
    record = describe(build)
    with replacing(build.artifacts / OVERLAY) as partial:
        partial.write_text(json.dumps(record, indent=1) + "\n", "utf-8")


def describe(build: Build) -> dict[str, Any]:
    """The content of ``OVERLAY``; clocks in MHz, slacks in ns, power in watts."""
    _check_artifacts(build)
    reports = build.reports
    synthesis = read_csynth(reports / "csynth.xml")
    if synthesis.part.lower() != build.board.device.part.lower():
        raise ReportError(reports / "csynth.xml", f"of part {synthesis.part}", *_of_this(build))
    used_report, used, available = read_utilization(reports / UTILIZATION)
    timing_report, timing = read_timing(reports / TIMING)
    power_report, power = read_power(reports / POWER)
    drc_report, drc = read_drc(reports / DRC)
    _check_designs(build, (used_report, timing_report, power_report, drc_report))
    cosim, route = read_cosim(reports / "cosim.rpt"), read_route(reports / ROUTE)
    _check_passed(
        (reports / "csynth.xml", "csynth", synthesis.violations[:2]),
        (reports / "cosim.rpt", "cosim", () if cosim.status == "Pass" else (f"status {cosim.status}",)),
        (reports / TIMING, "implementation", () if timing.met else (f"slack {timing.worst_ns:g} ns",)),
        (reports / DRC, "implementation", drc.errors[:2]),
        (reports / ROUTE, "implementation", () if route.complete else (f"{route.routed} nets of {route.routable}",)),
    )
    return {
        "format": FORMAT,
        "engine": build.engine.config.name,
        "build_id": f"{build.engine.config.build_id:08x}",
        "board": build.board.name,
        "part": build.board.device.part,
        "config": build.engine.config.model_dump(exclude={"name"}),
        "tools": {"hls": synthesis.version, "vivado": timing_report.version},
        "clock": _clock(build, synthesis, timing),
        "resources": _resources(build, synthesis, used, available),
        "loops": [vars(loop) for loop in synthesis.loops],
        "violations": list(synthesis.violations),
        "cosim": {"status": cosim.status, "clocks": cosim.latency[1]},
        "power": {
            **vars(power),
            "source": "estimate of Vivado, not measured",
            "planned": _planned_watts(build),
        },
        "drc": drc.by_severity,
        "route": vars(route),
        "artifacts": _hashes(build),
    }


def read_overlay(path: Path) -> dict[str, Any]:
    """What ``collect`` wrote; ``path``: the file, its folder, or a build's. ReportError if it is missing or damaged."""
    places = [path] if path.is_file() else [path / OVERLAY, path / "artifacts" / OVERLAY]
    place = next((place for place in places if place.is_file()), places[-1])
    expected, fix = f"{OVERLAY} of a finished build", "Give the folder that `fastcar overlay build` named."
    try:
        record = json.loads(place.read_text("utf-8"))
        if record["format"] != FORMAT:
            raise ReportError(place, f"format {record['format']}", f"format {FORMAT}", "Use the version that built it.")
    except OSError as error:
        raise ReportError(place, (error.strerror or str(error)).lower(), expected, fix) from error
    except (ValueError, KeyError, TypeError) as error:
        raise ReportError(place, "is damaged", expected, fix) from error
    return record


def _clock(build: Build, synthesis: Synthesis, timing: Timing) -> dict[str, Any]:
    target = build.engine.config.clock_mhz
    clock = timing.nearest(target)
    return {
        "target_mhz": target,
        "fmax_mhz": clock.fmax_mhz,
        "name": clock.name,
        "period_ns": clock.period_ns,
        "met": timing.met,
        "setup_ns": timing.setup_ns,
        "hold_ns": timing.hold_ns,
        "pulse_ns": timing.pulse_ns,
        "hls_estimated_ns": synthesis.estimated_ns,
        "hls_uncertainty_ns": synthesis.uncertainty_ns,
    }


def _planned_watts(build: Build) -> float:
    """Of the chip, by the planner's model, with all groups at work."""
    config = build.engine.config
    lut = total(estimate_on(config, build.board)).lut
    return planned_power(build.board, lut, config.clock_mhz, 1.0, 1e9 * build.board.ddr.sustained_gb_s).chip


def _resources(
    build: Build, synthesis: Synthesis, used: dict[str, float], available: dict[str, float]
) -> dict[str, dict[str, float | None]]:
    """Built: the whole design, placed. HLS and estimated: the engine alone; the estimate knows no flip-flops."""
    estimated = total(estimate_on(build.engine.config, build.board))
    hls = {**synthesis.resources, "bram36": synthesis.resources["bram18"] / 2}
    return {
        name: {
            "built": used[name],
            "hls": hls[name],
            "estimated": getattr(estimated, name) if name in RESOURCES else None,
            "available": available[name],
        }
        for name in used
    }


def _hashes(build: Build) -> dict[str, dict[str, object]]:
    files = [build.artifact(suffix) for suffix in BUILT]
    return {file.name: file_entry(file).model_dump() for file in files if file.is_file()}


def _check_passed(*gates: tuple[Path, str, tuple[str, ...]]) -> None:
    """(report, phase, what failed)."""
    for path, phase, failures in gates:
        if failures:
            found, fix = "; ".join(failures), f"Change the engine, or run again with --from {phase}."
            raise ReportError(path, found, "a design that passed", fix)


def _check_artifacts(build: Build) -> None:
    bit, handoff = read_bitfile(build.artifact(".bit")), read_handoff(build.artifact(".hwh"))
    for file, design in ((bit.path, bit.design), (handoff.path, handoff.design)):
        _check_design(build, file, design, OverlayError)
    if len(handoff.engines) != 1:
        found, fix = f"{len(handoff.engines)} decode engines", "Run again with --from block_design."
        raise OverlayError(handoff.path, found, "one", fix)
    missing = [register.name for register in engine_registers() if register.name not in handoff.registers]
    if missing:
        found = f"its engine has no register {', '.join(missing[:4])} ({len(missing)} missing)"
        raise OverlayError(
            handoff.path, found, "the registers that the driver writes, by name",
            "Compare with toolkit/program/register_map.py: this version of Vitis HLS names them otherwise.",
        )  # fmt: skip


def _check_designs(build: Build, reports: Iterable[Report]) -> None:
    for report in reports:
        _check_design(build, report.path, report.design, ReportError)


def _check_design(build: Build, path: Path, design: str, kind: type[FastCarError]) -> None:
    if build_id_of_name(design) != build.engine.config.build_id:
        raise kind(path, f"of design {design}", *_of_this(build))


def _of_this(build: Build) -> tuple[str, str]:
    device = build.board.device
    return f"{build.design.name} on {device.part}", "Remove the folder and build again: it holds files of two builds."
