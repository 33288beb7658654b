"""Running a build: what is done already is passed over, what fails stops it, what is interrupted resumes."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ...toolkit.errors import UsageError
from ...toolkit.output import check_output_folder
from .configure import ENGINE_JSON
from .errors import PhaseError
from .layout import PACKAGE, Build
from .phases import Phase, phases_of
from .plan import Choice, command_of, holding, plan, version_of, wrapper_file
from .process import complaints, last_lines, run_logged
from .stamps import Stamp, forget, key_of, read_stamp, write_stamp
from .tcl import wrapper
from .tools import Toolchain

__all__ = ["check_folder", "run"]

BYTES_NEEDED = 2 << 30
"""Of a new build, for projects and checkpoints. A guess: none was built yet. Better refused than full after hours."""

Advance = Callable[[str, int, int], None]
"""(stage, done, total): called as work proceeds."""


def check_folder(build: Build) -> None:
    """OutputError or UsageError if the folder cannot take this build, or holds another one. Creates nothing."""
    check_output_folder(build.folder, 0 if build.folder.exists() else BYTES_NEEDED)
    there = build.config / ENGINE_JSON
    wanted = f"{build.engine.config.build_id:08x}", build.board.device.part
    try:
        facts = json.loads(there.read_text("utf-8"))
        found = facts["build_id"], facts["part"]
    except FileNotFoundError:
        if not build.folder.exists() or not (strange := _strange(build.folder)):
            return
        found_text = f"holds {strange}, which is of no build"
    except (OSError, ValueError, KeyError, TypeError):
        found_text = f"{there.relative_to(build.folder)} cannot be read"
    else:
        if found == wanted:
            return
        found_text = f"holds build {found[0]} for {found[1]}"
    expected = f"an empty folder, or build {wanted[0]} for {wanted[1]}"
    raise UsageError(build.folder, found_text, expected, "Choose another --out, or remove that folder.")


def run(build: Build, tools: Toolchain, choice: Choice, advance: Advance) -> list[dict[str, Any]]:
    """Build; for every phase whether it ran, the seconds it took and its tool's version.

    UsageError, OutputError before anything is done; PhaseError when a phase fails, ReportError when what it made
    cannot be right. Whatever ends it, the next run goes on behind the last phase that was done.
    """
    steps = plan(build, tools, choice)
    if choice.only:  # refused before the folder is made, or what was done is forgotten
        _check_before(*choice.again(phases_of(build)), {step.phase.name for step in steps if step.holds})
    tools.require({step.phase.tool for step in steps if step.runs}, build.board)
    record = []
    with _alone(build):
        build.link_package()  # with --only, too: the project may have been moved since
        forget(build, choice.again(phases_of(build)))
        ids: dict[str, str] = {}
        for phase in phases_of(build):
            stamp = holding(build, phase, tools, ids)
            if choice.includes(phase):
                _check_before(phase, ids)
                if runs := stamp is None or phase.tool == "python":
                    advance(phase.name, 0, 1)
                    stamp = _run_phase(build, phase, tools, ids)
                    advance(phase.name, 1, 1)
                record.append({"phase": phase.name, "ran": runs, "seconds": stamp.seconds, "version": stamp.version})
            if stamp is not None:
                ids[phase.name] = stamp.id
    return record


def _check_before(phase: Phase, ids: Collection[str]) -> None:
    missing = [name for name in (*phase.gates, *phase.needs) if name not in ids]
    if missing:
        fix = f"Run without --only, or --only {missing[0]} before."
        raise UsageError(phase.name, f"not done before it: {', '.join(missing)}", "what it builds on", fix)


def _run_phase(build: Build, phase: Phase, tools: Toolchain, ids: dict[str, str]) -> Stamp:
    tools.require([phase.tool], build.board)  # the plan may have expected it to hold
    version = version_of(phase, tools, read_stamp(build, phase.name))
    forget(build, [phase])
    for name in phase.makes:
        (build.folder / name).unlink(missing_ok=True)  # what an earlier run left is no result of this one
    for folder in (build.reports, build.artifacts):  # projects and IP are the scripts' own
        folder.mkdir(parents=True, exist_ok=True)
    key = key_of(phase, build, version, ids)
    began = time.monotonic()
    if phase.work is not None:
        phase.work(build)
    if phase.tool != "python":
        _run_tool(build, phase, tools)
    missing = [name for name in phase.makes if not _filled(build.folder / name)]
    if missing:
        found = f"it ended as if well, but did not make {', '.join(missing)}"
        log = build.log(phase.name)
        raise PhaseError(phase.name, found, "every file of the phase", f"See {log}.", last_lines(log))
    return write_stamp(build, phase, key, version, time.monotonic() - began)


def _run_tool(build: Build, phase: Phase, tools: Toolchain) -> None:
    """PhaseError unless it exits with 0."""
    log, command = build.log(phase.name), command_of(build, phase, tools)
    if phase.script is not None:
        script = wrapper_file(build, phase)
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text(wrapper(phase.script_of(build), phase.arguments(build)), "utf-8")
    try:
        code = run_logged(command, log, build.folder)
    except OSError as error:
        found = f"{command[0]} does not start ({(error.strerror or str(error)).lower()})"
        raise PhaseError(phase.name, found, "a program that runs", "Mend its installation.") from error
    if code == 0:
        return
    how = f"exit code {code}" if code > 0 else f"signal {-code}"
    said = "; ".join(complaints(log)) or "it names no error"
    found = f"{Path(command[0]).name} ended with {how}: {said}"
    fix = f"Its log: {log}. The same command goes on with this phase."
    raise PhaseError(phase.name, found, "exit code 0", fix, last_lines(log))


@contextmanager
def _alone(build: Build) -> Iterator[None]:
    """One run at a time in a folder; the lock goes with the process that holds it."""
    build.folder.mkdir(parents=True, exist_ok=True)
    with (build.folder / "lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            found = f"another build is at work there (process {lock.read().strip() or 'unknown'})"
            raise UsageError(build.folder, found, "one at a time", "Wait for it, or end it.") from None
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        yield


def _strange(folder: Path) -> str | None:
    """The first name in a folder that no build made."""
    known = {"config", "hls", "ip", "vivado", "reports", "artifacts", "logs", "done", "lock", PACKAGE}
    return next((path.name for path in sorted(folder.iterdir()) if path.name not in known), None)


def _filled(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0
