"""Vivado's timing summary: the worst slacks of the design, and of each clock.

Slacks stand in tables whose head names the columns and whose second line is dashes; ``NA`` where there is no path.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from .reports_vivado import Clock, Report

__all__ = ["Timing", "read_timing"]

COLUMNS = ("WNS(ns)", "TNS(ns)", "WHS(ns)", "THS(ns)", "WPWS(ns)", "TPWS(ns)")
SLACKS = 12  # columns of slacks and endpoints
CELL = re.compile(r"NA|-?\d+(?:\.\d+)?")
CLOCK = re.compile(r"^\s*(\S+)\s+\{[^}]*\}\s+(\d+\.\d+)\s+(\d+\.\d+)\s*$", re.MULTILINE)


@dataclass(frozen=True)
class Timing:
    """Worst slack in ns of setup, hold and pulse width, None where there is no path; every clock by its name."""

    setup_ns: float | None
    hold_ns: float | None
    pulse_ns: float | None
    clocks: dict[str, Clock]

    @property
    def worst_ns(self) -> float:
        """The least slack of the three; 0 where there is no path at all."""
        slacks = (self.setup_ns, self.hold_ns, self.pulse_ns)
        return min((slack for slack in slacks if slack is not None), default=0.0)

    @property
    def met(self) -> bool:
        return self.worst_ns >= 0

    def nearest(self, mhz: float) -> Clock | None:
        """The clock that was asked for nearest to ``mhz``."""
        return min(self.clocks.values(), key=lambda clock: abs(1e3 / clock.period_ns - mhz), default=None)


def read_timing(path: Path) -> tuple[Report, Timing]:
    """ReportError if the report is missing, damaged or of another command."""
    report = Report(path, "report_timing_summary")
    whole = _table(report, "Design Timing Summary")
    values = next((cells for cells in whole if len(cells) == SLACKS), None)
    if values is None:
        raise report.unusable("has no row of slacks below Design Timing Summary")
    periods = {match[1]: float(match[2]) for match in CLOCK.finditer(_section(report, "Clock Summary"))}
    if not periods:
        raise report.unusable("has no clock in its Clock Summary")
    if still := [name for name, period in periods.items() if not period]:
        raise report.unusable(f"clock {still[0]} has a period of 0")
    rows = {cells[0]: cells[1:] for cells in _table(report, "Intra Clock Table") if len(cells) == SLACKS + 1}
    clocks = {
        name: Clock(name, period, *(_slack(rows.get(name, ["NA"] * SLACKS)[index]) for index in (0, 4)))
        for name, period in periods.items()
    }
    return report, Timing(_slack(values[0]), _slack(values[4]), _slack(values[8]), clocks)


def _section(report: Report, title: str) -> str:
    """From a boxed title to the next one; the same words stand in the table of contents."""
    match = re.search(rf"^\| {re.escape(title)}\s*\n(.*?)(?=^\| [A-Z]\S|\Z)", report.text, re.MULTILINE | re.DOTALL)
    if match is None:
        raise report.unusable(f"has no section {title!r}")
    return match[1]


def _table(report: Report, title: str) -> list[list[str]]:
    """Cells of the lines of a section that hold slacks."""
    rows = []
    for line in _section(report, title).splitlines():
        cells = line.split()
        if len(cells) >= SLACKS and all(CELL.fullmatch(cell) for cell in cells[-SLACKS:]):
            rows.append(cells)
    return rows


def _slack(text: str) -> float | None:
    return None if text == "NA" else float(text)
