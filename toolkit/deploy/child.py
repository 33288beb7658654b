"""Programs run as children: ssh, rsync, pip. None outlives the call, whatever ends it."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

__all__ = ["Reply", "child", "run_child"]

GRACE_SECONDS = 5


@dataclass(frozen=True)
class Reply:
    """What a program printed, and its exit code (negative: the signal that ended it)."""

    code: int
    output: str
    errors: str

    @property
    def last_line(self) -> str:
        """The last thing it said, on stderr if it said something there."""
        lines = [line.strip() for line in (self.errors.strip() or self.output.strip()).splitlines()]
        return lines[-1] if lines else f"exit code {self.code}"


@contextmanager
def child(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen]:
    """The running program; asked to end, then made to, when the block is left while it still runs."""
    environment = {**os.environ, "LC_ALL": "C", **options.pop("env", {})}  # its messages are looked at
    process = subprocess.Popen(command, env=environment, **options)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def run_child(
    command: Sequence[str], on_line: Callable[[str], None] | None = None, stdin: str = "", **options: Any
) -> Reply:
    """Run to the end. ``on_line`` is called with each line of stdout, also those that a carriage return ends."""
    text = {"encoding": "utf-8", "errors": "replace"}
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as said:
        given.write(stdin.encode())
        given.seek(0)
        output = []
        with child(command, stdin=given, stdout=subprocess.PIPE, stderr=said, **text, **options) as process:
            for line in process.stdout:
                output.append(line)
                if on_line:
                    on_line(line)
            code = process.wait()
            process.stdout.close()
        said.seek(0)
        return Reply(code, "".join(output), said.read().decode(errors="replace"))
