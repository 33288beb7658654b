"""What stops a build of an overlay."""

from __future__ import annotations

from ...toolkit.errors import FastCarError

__all__ = ["PhaseError", "ReportError"]


class PhaseError(FastCarError):
    """A phase failed; ``dump``: the last lines of its log."""

    exit_code = 1

    def __init__(self, subject: object, found: str, expected: str, fix: str, dump: str = "") -> None:
        super().__init__(subject, found, expected, fix)
        self.dump = dump


class ReportError(FastCarError):
    """A report of the vendor's tools is missing, damaged, of another form or of another build."""
