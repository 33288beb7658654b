"""Files of prompts, a prompt a line."""

from __future__ import annotations

from pathlib import Path

from ..errors import UsageError

__all__ = ["prompt_lines"]


def prompt_lines(option: str, path: Path) -> tuple[str, ...]:
    """Not empty, without spaces around them; a byte order mark is no part of the first."""
    try:
        lines = tuple(line.strip() for line in path.read_text("utf-8-sig").splitlines() if line.strip())
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not text in UTF-8"
        raise UsageError(option, f"{path}: {reason}", "a text file, a prompt a line", "Correct the path.") from error
    if not lines:
        raise UsageError(option, f"{path} is empty", "a prompt a line", "Write some.")
    return lines
