"""The vendor's tools: found on the path, their versions, and the command line that each version takes.

Vitis HLS was ``vitis_hls`` up to 2024.1; from 2024.2 on ``vitis-run`` runs its scripts (recommended since 2023.2), and
passes no arguments on to them. Every script therefore gets its arguments from a wrapper (``tcl``).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ...boards import Board
from ...toolkit.errors import UsageError

__all__ = ["FIRST", "LAST", "Tool", "Toolchain", "find_tools"]

FIRST, LAST = (2022, 2), (2025, 2)
RANGE = "2022.2 to 2025.2"
VERSION = re.compile(r"\bv?(20\d\d)\.(\d)(?:\.\d+)?\b")
SECONDS = 120  # to tell a version; a tool on a network drive takes its time
SOURCE_SETTINGS = "Source settings64.sh of an installation of Vitis, which brings Vivado along"


@dataclass(frozen=True)
class Form:
    """A command of the vendor: its versions, what asks for the version, and what runs a script."""

    command: str
    first: tuple[int, int]
    last: tuple[int, int]
    asking: tuple[str, ...]
    running: tuple[str, ...]  # before the script's name


FORMS = {
    "hls": (
        Form("vitis-run", (2024, 2), LAST, ("--version",), ("--mode", "hls", "--tcl")),
        Form("vitis_hls", FIRST, (2024, 1), ("-version",), ("-f",)),
    ),
    "vivado": (Form("vivado", FIRST, LAST, ("-version",), ("-mode", "batch", "-nojournal", "-nolog", "-source")),),
}
"""What a phase needs -> the commands that do it, the newest first."""


@dataclass(frozen=True)
class Tool:
    """``path`` None: not found, and taken for the newest."""

    form: Form
    path: str | None
    version: tuple[int, int]

    @property
    def version_text(self) -> str:
        return f"{self.version[0]}.{self.version[1]}"

    def command(self, script: Path) -> list[str]:
        return [self.path or self.form.command, *self.form.running, str(script)]


@dataclass(frozen=True)
class Toolchain:
    """``tools``: hls and vivado, those that were found; ``dtc``: path of the device tree compiler, if found.

    ``unusable``: for each that was not found or cannot be used, why.
    """

    tools: Mapping[str, Tool]
    dtc: str | None
    unusable: Mapping[str, str]

    def version(self, kind: str) -> str | None:
        """Of the tool of that kind; None where it has none or is not there."""
        return self.tools[kind].version_text if kind in self.tools else None

    def command(self, kind: str, script: Path) -> list[str]:
        """The command line for a script, of the newest version where the tool is not there."""
        tool = self.tools.get(kind) or Tool(FORMS[kind][0], None, LAST)
        return tool.command(script)

    def require(self, kinds: Iterable[str], board: Board) -> None:
        """UsageError, once for all that is missing, naming versions and the edition that suffices for the board."""
        needed = sorted(set(kinds) - {"python"})
        vendor = [kind for kind in needed if kind in FORMS]
        reasons = [self.unusable[kind] for kind in vendor if kind in self.unusable]
        if reasons:
            raise UsageError("build tools", "; ".join(reasons), _expected(board), _remedy(board))
        if len({self.tools[kind].version for kind in vendor}) > 1:
            found = " and ".join(f"{self.tools[kind].form.command} {self.tools[kind].version_text}" for kind in vendor)
            raise UsageError("build tools", found, "one version of both", f"{SOURCE_SETTINGS}, in a new shell.")
        if "dtc" in needed and self.dtc is None:
            fix = "apt-get install device-tree-compiler, or put the one of Vitis on the path."
            raise UsageError("build tools", "dtc is not on the path", "the device tree compiler", fix)


def find_tools(path: str | None = None) -> Toolchain:
    """Ask what is on ``path`` (default: PATH) for its version. Raises nothing: see ``Toolchain.require``."""
    tools, unusable = {}, {}
    for kind, forms in FORMS.items():
        found = list(_candidates(forms, path))
        usable = [tool for tool in found if tool.version and tool.form.first <= tool.version <= tool.form.last]
        if usable:
            tools[kind] = usable[0]
        else:
            unusable[kind] = "; ".join(map(_why, found)) or f"{_named(forms)} is not on the path"
    return Toolchain(tools, shutil.which("dtc", path=path), unusable)


@dataclass(frozen=True)
class _Candidate(Tool):
    version: tuple[int, int] | None


def _candidates(forms: tuple[Form, ...], path: str | None) -> Iterator[_Candidate]:
    for form in forms:
        if place := shutil.which(form.command, path=path):
            yield _Candidate(form, place, _version(place, form))


def _version(place: str, form: Form) -> tuple[int, int] | None:
    """What the tool says; else what its folder is called: /tools/Xilinx/Vivado/2024.1/bin, /tools/2025.1/Vivado/bin."""
    try:
        reply = subprocess.run(
            [place, *form.asking], capture_output=True, stdin=subprocess.DEVNULL, timeout=SECONDS, cwd=os.sep
        )
        said = (reply.stdout + reply.stderr).decode(errors="replace")
    except (OSError, subprocess.TimeoutExpired):
        said = ""
    for text in (said, *reversed(Path(place).resolve().parts)):
        if match := VERSION.search(text):
            return int(match[1]), int(match[2])
    return None


def _why(tool: _Candidate) -> str:
    if tool.version is None:
        return f"{tool.path} does not tell its version"
    form = tool.form
    if FIRST <= tool.version <= LAST:
        other = next(other for other in FORMS["hls"] if other is not form)
        return f"{tool.path} is {tool.version_text}, where {other.command} runs scripts and is not on the path"
    return f"{tool.path} is {tool.version_text}"


def _named(forms: tuple[Form, ...]) -> str:
    return " or ".join(f"{form.command} ({_span(form)})" if len(forms) > 1 else form.command for form in forms)


def _span(form: Form) -> str:
    return f"{form.first[0]}.{form.first[1]} to {form.last[0]}.{form.last[1]}"


def _expected(board: Board) -> str:
    return f"Vitis HLS and Vivado, both of one version, {RANGE}"


def _remedy(board: Board) -> str:
    device = board.device
    if device.edition is None:
        edition = f"which edition supports {device.part} is in UG973"
    else:
        edition = f"for {device.part} the {device.edition} edition of Vivado suffices ({device.edition_source})"
    return f"{SOURCE_SETTINGS}; {edition}. --dry-run shows the commands without the tools."
