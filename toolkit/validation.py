"""What a pydantic model has against a file, in words for one line."""

from __future__ import annotations

from pydantic import ValidationError

__all__ = ["first_fault"]


def first_fault(error: ValidationError) -> tuple[str, str]:
    """Of the first value that is wrong: its name (``"depth.heads"``; empty for the whole file), and why."""
    fault = error.errors()[0]
    return ".".join(map(str, fault["loc"])), fault["msg"].removeprefix("Value error, ")
