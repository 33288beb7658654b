"""What Vivado reports of a routed design, as text: utilization, timing, power, design rules, routes.

Every report begins with lines ``| Key : value``; ``Design`` is the top level, whose name holds the build id.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .errors import ReportError

__all__ = ["Clock", "Drc", "Power", "Report", "Route", "read_drc", "read_power", "read_route", "read_utilization"]

NUMBER = r"-?\d+(?:\.\d+)?"
SITES = {"lut": "CLB LUTs", "ff": "CLB Registers", "dsp": "DSPs", "bram36": "Block RAM Tile", "uram": "URAM"}
ROUTES = {
    "routable": "# of routable nets",
    "routed": "# of fully routed nets",
    "errors": "# of nets with routing errors",
}


class Report:
    """The text of a report. ReportError if it is missing, or was written by another command than ``command``."""

    def __init__(self, path: Path, command: str) -> None:
        self.path, self.command = path, command
        try:
            self.text = path.read_text("utf-8", "replace")
        except OSError as error:
            raise self.unusable((error.strerror or str(error)).lower()) from error
        written = self.head("Command").split(" ")[0]
        if written != command:
            raise self.unusable(f"was written by {written}")
        self.design, self.version = self.head("Design"), self._version()

    def head(self, key: str) -> str:
        match = re.search(rf"^\|\s*{key}\s*:\s*(\S.*?)\s*$", self.text, re.MULTILINE)
        if match is None:
            raise self.unusable(f"its head has no {key}")
        return match[1]

    def rows(self) -> Iterator[list[str]]:
        """Cells of the lines that are rows of a table."""
        for line in self.text.splitlines():
            if line.startswith("|") and line.rstrip().endswith("|"):
                yield [cell.strip() for cell in line.strip().strip("|").split("|")]

    def number(self, text: str, what: str) -> float:
        """The number that ``text`` begins with."""
        match = re.match(NUMBER, text)
        if match is None:
            raise self.unusable(f"{what} is {text!r}")
        return float(match[0])

    def unusable(self, found: str) -> ReportError:
        phase = "synthesis" if "synth" in self.path.name else "implementation"
        return ReportError(self.path, found, f"what {self.command} writes", f"Run again with --from {phase}.")

    def _version(self) -> str:
        match = re.search(r"v\.?(20\d\d\.\d)", self.head("Tool Version"))
        if match is None:
            raise self.unusable(f"its tool's version is {self.head('Tool Version')!r}")
        return match[1]


@dataclass(frozen=True)
class Power:
    """Estimate of Vivado in watts at the junction temperature in degrees Celsius; ``confidence``: its own word."""

    total: float
    dynamic: float
    static: float
    junction: float
    confidence: str


@dataclass(frozen=True)
class Drc:
    """Rules that were broken: how often, by severity; ``errors``: rule and description."""

    by_severity: dict[str, int]
    errors: tuple[str, ...]


@dataclass(frozen=True)
class Route:
    """Nets."""

    routable: int
    routed: int
    errors: int

    @property
    def complete(self) -> bool:
        return self.routed == self.routable and not self.errors


@dataclass(frozen=True)
class Clock:
    """``period_ns`` asked for; ``setup_ns`` and ``hold_ns``: worst slack of paths within the clock, None: no path."""

    name: str
    period_ns: float
    setup_ns: float | None
    hold_ns: float | None

    @property
    def fmax_mhz(self) -> float | None:
        """The clock at which the worst setup path would just be met: 1000 / (period - slack), if one takes time."""
        if self.setup_ns is None or self.setup_ns >= self.period_ns:
            return None
        return 1e3 / (self.period_ns - self.setup_ns)


def read_utilization(path: Path) -> tuple[Report, dict[str, float], dict[str, float]]:
    """Used and available by resource, block RAMs of 36 kbit in halves; 0 of both where the device has no such site."""
    report = Report(path, "report_utilization")
    rows = {cells[0].rstrip("*"): cells for cells in report.rows() if len(cells) >= 4}
    used, available = {}, {}
    for key, site in SITES.items():
        if site not in rows and key == "uram":  # no row where a device has none
            used[key] = available[key] = 0.0
            continue
        if site not in rows:
            raise report.unusable(f"has no row {site!r}")
        used[key] = report.number(rows[site][1], site)
        available[key] = report.number(rows[site][-2], f"available {site}")
    return report, used, available


def read_power(path: Path) -> tuple[Report, Power]:
    report = Report(path, "report_power")
    rows = {cells[0]: cells[1] for cells in report.rows() if len(cells) == 2}

    def value(key: str) -> str:
        if key not in rows:
            raise report.unusable(f"has no row {key!r}")
        return rows[key]

    names = ("Total On-Chip Power (W)", "Dynamic (W)", "Device Static (W)", "Junction Temperature (C)")
    return report, Power(*(report.number(value(name), name) for name in names), value("Confidence Level"))


def read_drc(path: Path) -> tuple[Report, Drc]:
    report = Report(path, "report_drc")
    found = re.search(r"(?:Violations|Checks) found:\s*(\d+)", report.text)
    if found is None:
        raise report.unusable("does not say how many violations were found")
    by_severity: dict[str, int] = {}
    errors = []
    for cells in report.rows():
        if len(cells) == 4 and cells[3].isdigit():
            rule, severity, description, count = cells
            by_severity[severity] = by_severity.get(severity, 0) + int(count)
            if severity.lower() in ("error", "fatal"):
                errors.append(f"{rule}: {description}")
    if sum(by_severity.values()) != int(found[1]):
        raise report.unusable(f"{found[1]} violations found, {sum(by_severity.values())} in its table")
    return report, Drc(by_severity, tuple(errors))


def read_route(path: Path) -> Route:
    """``report_route_status`` writes no head."""
    try:
        text = path.read_text("utf-8", "replace")
    except OSError as error:
        text = ""
        reason = (error.strerror or str(error)).lower()
    else:
        reason = "is no report of routes"
    counts = {}
    for key, label in ROUTES.items():
        match = re.search(rf"{re.escape(label)}[. ]*:\s*(\d+)\s*:", text)
        if match is None:
            found = f"has no line {label!r}" if "Design Route Status" in text else reason
            fix = "Run again with --from implementation."
            raise ReportError(path, found, "what report_route_status writes", fix)
        counts[key] = int(match[1])
    return Route(**counts)
