"""An export that was interrupted, and how far it had got: what is finished is not done again."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

__all__ = ["Journal", "export_key", "finished_layers"]

JOURNAL = "unfinished.json"
SPILLED = "unfinished"


class _Entries(BaseModel):
    model_config = ConfigDict(extra="forbid")

    layers: int = 0
    notes: list[str] = []


class Journal:
    """In the folder where a bundle is being made: ``layers`` are finished, with their ``notes``.

    ``spilled``: a folder for what passes between layers. Both are gone after ``close``.
    """

    def __init__(self, folder: Path) -> None:
        self.path, self.spilled = folder / JOURNAL, folder / SPILLED
        self._entries = _read(self.path)
        self.spilled.mkdir(exist_ok=True)

    @property
    def layers(self) -> int:
        return self._entries.layers

    @property
    def notes(self) -> list[str]:
        return self._entries.notes

    def finish_layer(self, notes: list[str]) -> None:
        """What the layer left must be on disk already."""
        entries = self._entries
        entries.layers += 1
        entries.notes += notes
        partial = self.path.with_suffix(".partial")
        with partial.open("w") as file:
            file.write(entries.model_dump_json())
            file.flush()
            os.fsync(file.fileno())
        partial.replace(self.path)

    def close(self) -> None:
        shutil.rmtree(self.spilled)
        self.path.unlink(missing_ok=True)


def finished_layers(folder: Path) -> int:
    """How many an unfinished export in ``folder`` has behind it."""
    return _read(folder / JOURNAL).layers


def _read(path: Path) -> _Entries:
    """Without a journal, or with one cut off, nothing counts as finished."""
    try:
        return _Entries.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return _Entries()


def export_key(settings: dict[str, Any], sources: list[Path]) -> str:
    """12 digits that change with the settings and with any of the files that are read, by size and time of change."""
    stats = [(str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns) for path in sorted(sources)]
    text = json.dumps([settings, stats], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
