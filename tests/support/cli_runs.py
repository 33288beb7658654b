"""Running the command line as a user does, without a process for each time."""

from __future__ import annotations

import json
import signal
import sys
from dataclasses import dataclass
from typing import Any

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


def succeeded(outcome: Outcome) -> Outcome:
    assert outcome.code == 0, outcome.stderr
    assert "Traceback" not in outcome.stderr
    return outcome


def parsed(outcome: Outcome) -> dict[str, Any]:
    """Strict JSON, and stdout is nothing else."""
    return json.loads(succeeded(outcome).stdout, parse_constant=lambda text: pytest.fail(f"{text} is not JSON"))
