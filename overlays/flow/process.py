"""A vendor's tool as a process: its own group, into a log, and gone when this process is, however that ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["complaints", "last_lines", "run_logged"]

GRACE_SECONDS = 5
ERROR = re.compile(r"^\s*(ERROR|CRITICAL WARNING|FATAL|error)\b.*", re.MULTILINE)
TAIL_BYTES = 1 << 20
LINE = 500  # characters shown of a line
GUARD = 'read word && exit; kill -TERM "-$0"; sleep 5; kill -KILL "-$0"'
"""Waits for a word, or for the end of the process that would say it: a group of its own does not end with ours."""


def run_logged(command: Sequence[str], log: Path, folder: Path) -> int:
    """Run in ``folder`` with both streams into ``log``; the exit code, negative: the signal that ended it.

    The tools start programs of their own: whatever is left of the group is ended when this returns or raises.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        streams = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": subprocess.STDOUT}
        process = subprocess.Popen(command, cwd=folder, start_new_session=True, **streams)
    with _guarded(process.pid):
        try:
            return process.wait()
        finally:
            _end_group(process)


def last_lines(log: Path, count: int = 15) -> str:
    """The end of a log, for a person."""
    return "\n".join(map(_shown, _tail(log).rstrip().splitlines()[-count:]))


def complaints(log: Path, count: int = 2) -> list[str]:
    """What the tool called errors, the first ones of the log's end; critical warnings where there are none."""
    found = [_shown(match[0].strip()) for match in ERROR.finditer(_tail(log))]
    errors = [line for line in found if not line.startswith("CRITICAL")]
    return (errors or found)[:count]


def _shown(line: str) -> str:
    """A line as a terminal can take it: no control characters, and no more than a person reads."""
    clean = "".join(c if c.isprintable() or c == "\t" else "?" for c in line[: LINE + 1])
    return clean if len(clean) <= LINE else clean[:LINE] + " ..."


def _tail(log: Path) -> str:
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - TAIL_BYTES))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


def _end_group(process: subprocess.Popen) -> None:
    """Nothing of it runs afterwards. A second Ctrl-C meanwhile does not leave it running."""
    try:
        with suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(GRACE_SECONDS)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextmanager
def _guarded(group: int) -> Iterator[None]:
    """Ends the group should this process be killed, which leaves no time to do it here."""
    guard = subprocess.Popen(
        ["/bin/sh", "-c", GUARD, str(group)],
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        yield
    finally:
        with suppress(OSError):
            guard.stdin.write(b"done\n")
            guard.stdin.close()
        guard.wait()
