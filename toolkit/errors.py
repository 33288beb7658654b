"""The errors a user can cause, each one sentence: what was found, what was expected, how to fix it."""

from __future__ import annotations

__all__ = [
    "BundleError",
    "CheckpointError",
    "DeviceError",
    "FastCarError",
    "FitError",
    "OutputError",
    "OverlayError",
    "UsageError",
]


class FastCarError(Exception):
    """Base of every error that is the input's fault; the command line prints it on one line and exits with 2.

    ``dump``: the device's registers at that moment, a line each, where one was already reached.
    """

    exit_code = 2

    def __init__(self, subject: object, found: str, expected: str, fix: str, dump: str = "") -> None:
        self.subject, self.found, self.expected, self.fix, self.dump = str(subject), found, expected, fix, dump
        super().__init__(f"{subject}: {found}; expected {expected}. {fix}")

    def __reduce__(self) -> tuple[type, tuple[str, ...]]:
        """Pickled by its parts: it may come from another process."""
        return type(self), (self.subject, self.found, self.expected, self.fix, self.dump)


class UsageError(FastCarError):
    """An option or argument holds a value that cannot be used."""


class FitError(UsageError):
    """Something does not fit a board; ``dump``: the sum, a line each."""

    def __init__(self, subject: object, found: str, expected: str, fix: str, dump: str) -> None:
        super().__init__(subject, found, expected, fix)
        self.dump = dump


class CheckpointError(FastCarError):
    """A checkpoint folder is incomplete, inconsistent or holds unusable numbers."""


class BundleError(FastCarError):
    """A bundle is incomplete, altered or of another version."""


class OutputError(FastCarError):
    """The place to write to cannot take the result."""


class OverlayError(FastCarError):
    """A bitstream, its hardware handoff and the bundle do not belong together."""


class DeviceError(FastCarError):
    """The device failed while it worked."""

    exit_code = 3
