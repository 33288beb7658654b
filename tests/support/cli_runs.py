"""Running the command line as a user does, without a process for each time."""

from __future__ import annotations

import signal
import sys
from dataclasses import dataclass

import pytest

from fastcar.toolkit.cli.app import main


@dataclass(frozen=True)
class Outcome:
    code: int
    stdout: str
    stderr: str

    @property
    def error(self) -> str:
        """The one line that a failure is told in, after any line of progress."""
        lines = [line for line in self.stderr.splitlines() if line and not line.endswith(" ...")]
        assert len(lines) == 1, f"expected one line, got {self.stderr!r}"
        return lines[0]


def run(*arguments: object) -> Outcome:
    """``fastcar`` with these arguments through its entry point, exit code and both streams captured."""
    import io
    from contextlib import redirect_stderr, redirect_stdout

    out, err = io.StringIO(), io.StringIO()
    before, handler = sys.argv, signal.getsignal(signal.SIGTERM)
    sys.argv = ["fastcar", *map(str, arguments)]
    try:
        with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as exit_:
            main()
    finally:
        sys.argv = before
        signal.signal(signal.SIGTERM, handler)
    code = exit_.value.code
    return Outcome(0 if code is None else code, out.getvalue(), err.getvalue())
