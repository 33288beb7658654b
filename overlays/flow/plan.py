"""What a run of a build would do: which phases hold as they are, which run, and with which commands."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ...toolkit.errors import UsageError
from .device_tree import compiler_arguments
from .errors import PhaseError
from .layout import Build
from .phases import Phase, phases_of
from .stamps import Stamp, key_of, read_stamp, valid
from .tools import Toolchain

__all__ = ["Choice", "Step", "command_of", "holding", "plan", "version_of", "wrapper_file"]


@dataclass(frozen=True)
class Choice:
    """What to do again though it is done: everything from ``start`` on, or ``only`` one phase."""

    start: str | None = None
    only: str | None = None

    def check(self, build: Build) -> None:
        """UsageError if this build has no such phase, or both are given."""
        names = [phase.name for phase in phases_of(build)]
        for option, name in (("--from", self.start), ("--only", self.only)):
            if name is not None and name not in names:
                found = f"{name!r} is no phase of a build for {build.board.name}"
                raise UsageError(option, found, f"one of {', '.join(names)}", "Name one of them.")
        if self.start and self.only:
            raise UsageError("--only", "beside --from", "one of the two", "Drop one of them.")

    def again(self, phases: tuple[Phase, ...]) -> tuple[Phase, ...]:
        """Those to forget the results of."""
        names = [phase.name for phase in phases]
        if self.only:
            return (phases[names.index(self.only)],)
        return phases[names.index(self.start) :] if self.start else ()

    def includes(self, phase: Phase) -> bool:
        """Whether the run gets to this phase at all."""
        return self.only is None or phase.name == self.only


@dataclass(frozen=True)
class Step:
    """A phase; ``runs``: what it made so far, if anything, does not hold, or is wanted anew; ``holds``: it does."""

    phase: Phase
    runs: bool
    holds: bool


def plan(build: Build, tools: Toolchain, choice: Choice) -> list[Step]:
    """Every phase of the build, without doing anything. UsageError if the choice is none or a script is missing.

    What Python writes takes a second and is written each time; should it differ, phases after it run that hold here.
    """
    choice.check(build)
    phases = phases_of(build)
    for phase in phases:
        if phase.script is not None and not phase.script.is_file():
            raise UsageError(phase.script, "no such file", "the script of a phase", "Install the project again.")
    again = {phase.name for phase in choice.again(phases)}
    steps: list[Step] = []
    ids: dict[str, str] = {}
    for phase in phases:
        stamp = holding(build, phase, tools, ids)
        if stamp is not None and phase.name not in again:
            ids[phase.name] = stamp.id
        runs = choice.includes(phase) and (phase.tool == "python" or phase.name not in ids)
        steps.append(Step(phase, runs, phase.name in ids))
    return steps


def holding(build: Build, phase: Phase, tools: Toolchain, ids: dict[str, str]) -> Stamp | None:
    """The stamp of a phase whose results hold; ``ids``: of the phases before it whose results do."""
    stamp = read_stamp(build, phase.name)
    if stamp is None or any(name not in ids for name in phase.needs):
        return None
    try:
        key = key_of(phase, build, version_of(phase, tools, stamp), ids)
    except PhaseError:  # a file that it reads is not there yet
        return None
    return stamp if valid(stamp, phase, build, key) else None


def version_of(phase: Phase, tools: Toolchain, stamp: Stamp | None) -> str | None:
    """Of the phase's tool; where it is not there, the version that was: results hold without it."""
    return tools.version(phase.tool) or (stamp.version if stamp else None)


def wrapper_file(build: Build, phase: Phase) -> Path:
    return build.log(phase.name).with_suffix(".tcl")


def command_of(build: Build, phase: Phase, tools: Toolchain) -> list[str]:
    """The command line; empty for what is done in Python."""
    if phase.tool == "python":
        return []
    if phase.tool == "dtc":
        return [tools.dtc or "dtc", *compiler_arguments(build)]
    return tools.command(phase.tool, wrapper_file(build, phase))
