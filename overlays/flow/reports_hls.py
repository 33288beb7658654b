"""What Vitis HLS reports: ``csynth.xml`` of a synthesis, ``cosim.rpt`` of a co-simulation.

A loop of ``csynth.xml`` is any element with a ``PipelineII``; its name is its ``Name`` or, in older versions, its
tag; loops of functions that were not inlined lie below a ``Module``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from .errors import ReportError

__all__ = ["Cosim", "Loop", "Synthesis", "read_cosim", "read_csynth"]

RESOURCES = {"lut": "LUT", "ff": "FF", "dsp": "DSP", "bram18": "BRAM_18K", "uram": "URAM"}
LOOPS = "SummaryOfLoopLatency"


@dataclass(frozen=True)
class Loop:
    """A pipelined loop: clocks from one iteration to the next (``ii``) and of one iteration (``depth``)."""

    function: str
    name: str
    ii: int
    depth: int | None


@dataclass(frozen=True)
class Synthesis:
    """Estimates of the tool, of the top function: clocks in ns; ``resources`` used, and what the device has.

    ``violations``: II and timing violations by function.
    """

    version: str
    part: str
    top: str
    target_ns: float
    uncertainty_ns: float
    estimated_ns: float
    resources: dict[str, int]
    available: dict[str, int]
    loops: tuple[Loop, ...]
    violations: tuple[str, ...]


@dataclass(frozen=True)
class Cosim:
    """``status``: Pass or Fail; ``latency``: clocks of a call, least, average, most; None where not told."""

    status: str
    latency: tuple[int | None, int | None, int | None]
    total: int | None


def read_csynth(path: Path) -> Synthesis:
    """ReportError if the file is missing, damaged or of another form."""
    try:
        root = ElementTree.parse(path).getroot()
    except OSError as error:
        raise _unusable(path, (error.strerror or str(error)).lower(), "csynth") from error
    except (ElementTree.ParseError, LookupError, ValueError) as error:  # the latter two: of its encoding
        raise _unusable(path, f"is not XML ({error})", "csynth") from error
    modules = root.findall("./ModuleInformation/Module")
    top = _text(root, "UserAssignments/TopModelName", path)
    parts = [(top, root), *((module.findtext("Name", "?").strip(), module) for module in modules)]
    return Synthesis(
        version=_text(root, "ReportVersion/Version", path),
        part=_text(root, "UserAssignments/Part", path),
        top=top,
        target_ns=_number(root, "UserAssignments/TargetClockPeriod", path),
        uncertainty_ns=_number(root, "UserAssignments/ClockUncertainty", path),
        estimated_ns=_number(root, "PerformanceEstimates/SummaryOfTimingAnalysis/EstimatedClockPeriod", path),
        resources=_resources(root, "Resources", path),
        available=_resources(root, "AvailableResources", path),
        loops=_loops(parts, path),
        violations=tuple(found for name, part in parts for found in _violations(name, part)),
    )


def read_cosim(path: Path) -> Cosim:
    """The row of the language that was simulated. ReportError as above, and if the report has no such row."""
    try:
        text = path.read_text("utf-8", "replace")
    except OSError as error:
        raise _unusable(path, (error.strerror or str(error)).lower(), "cosim") from error
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if cells[0] in ("Verilog", "VHDL") and len(cells) > 1 and cells[1] not in ("NA", "N/A", ""):
            numbers = [_digits(cell) for cell in cells[2:]]
            padded = [*numbers, None, None, None]
            return Cosim(cells[1], (padded[0], padded[1], padded[2]), numbers[-1] if len(numbers) > 6 else None)
    raise _unusable(path, "has no row of a simulated language", "cosim")


def _loops(parts: list[tuple[str, Element]], path: Path) -> tuple[Loop, ...]:
    loops = {}
    for function, part in parts:
        summary = part.find(f"./PerformanceEstimates/{LOOPS}")
        for element in summary.iter() if summary is not None else ():
            if element.find("PipelineII") is None:
                continue
            name = element.findtext("Name", element.tag).strip()
            depth = element.findtext("PipelineDepth", "").strip()
            ii = _whole(element, "PipelineII", path)
            loops[function, name] = Loop(function, name, ii, _digits(depth))
    return tuple(loops.values())


def _violations(function: str, part: Element) -> list[str]:
    """Issues of the function and of its loops, as the tool names them; a dash stands for none."""
    summary = part.find("./PerformanceEstimates/SummaryOfViolations")
    found = []
    for element in summary.iter() if summary is not None else ():
        kinds = [element.findtext(tag, "-").strip() for tag in ("IssueType", "ViolationType")]
        named = [kind for kind in kinds if kind not in ("", "-")]
        where = element.findtext("SourceLocation", "").strip()
        if named:
            name = element.findtext("Name", "").strip()
            place = f"{function}, loop {name}" if name else function
            found.append(f"{place}: {named[0]}" + (f" at {where}" if where not in ("", "-") else ""))
    return found


def _resources(root: Element, table: str, path: Path) -> dict[str, int]:
    return {key: _whole(root, f"AreaEstimates/{table}/{tag}", path) for key, tag in RESOURCES.items()}


def _text(root: Element, where: str, path: Path) -> str:
    text = (root.findtext(where) or "").strip()
    if not text:
        raise _unusable(path, f"has no {where}", "csynth")
    return text


def _number(root: Element, where: str, path: Path) -> float:
    text = _text(root, where, path)
    if not re.fullmatch(r"[0-9]{1,18}(\.[0-9]+)?", text):
        raise _unusable(path, f"{where} is {text!r}", "csynth")
    return float(text)


def _whole(root: Element, where: str, path: Path) -> int:
    text = _text(root, where, path)
    number = _digits(text)
    if number is None:
        raise _unusable(path, f"{where} is {text[:40]!r}", "csynth")
    return number


def _digits(text: str) -> int | None:
    """A count as the tool writes it: up to 18 of the digits 0 to 9, which is not all that Python calls digits."""
    return int(text) if re.fullmatch(r"[0-9]{1,18}", text) else None


def _unusable(path: Path, found: str, phase: str) -> ReportError:
    return ReportError(path, found, f"the report of Vitis HLS that {phase} keeps", f"Run again with --from {phase}.")
