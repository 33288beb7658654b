"""An export that was interrupted, and how far it had got: what is finished is not done again."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

__all__ = ["Journal", "export_key"]

JOURNAL = "unfinished.json"
SPILLED = "unfinished"


class _Entries(BaseModel):
    model_config = ConfigDict(extra="forbid")

    layers: int = 0
    notes: list[str] = []
    tas_scales: list[float] = []


class Journal:
    """In the folder where a bundle is being made: ``layers`` are finished, with their ``notes`` and ``tas_scales``.

    ``spilled``: a folder for what passes between layers. Both are gone after ``close``.
    """

    def __init__(self, folder: Path) -> None:
        self.path, self.spilled = folder / JOURNAL, folder / SPILLED
        try:
            self._entries = _Entries.model_validate_json(self.path.read_bytes())
        except (OSError, ValidationError):  # none yet, or one cut off: then nothing counts as finished
            self._entries = _Entries()
        self.spilled.mkdir(exist_ok=True)

    @property
    def layers(self) -> int:
        return self._entries.layers

    @property
    def notes(self) -> list[str]:
        return self._entries.notes

    @property
    def tas_scales(self) -> list[float]:
        return self._entries.tas_scales

    def finish_layer(self, notes: list[str], tas_scale: float) -> None:
        """What the layer left must be on disk already."""
        entries = self._entries
        entries.layers += 1
        entries.notes += notes
        entries.tas_scales.append(tas_scale)
        partial = self.path.with_suffix(".partial")
        with partial.open("w") as file:
            file.write(entries.model_dump_json())
            file.flush()
            os.fsync(file.fileno())
        partial.replace(self.path)

    def close(self) -> None:
        for file in self.spilled.iterdir():
            file.unlink()
        self.spilled.rmdir()
        self.path.unlink(missing_ok=True)


def finished_layers(folder: Path) -> int:
    """How many an unfinished export in ``folder`` has behind it."""
    try:
        return _Entries.model_validate_json((folder / JOURNAL).read_bytes()).layers
    except (OSError, ValidationError):
        return 0


def export_key(settings: dict[str, Any], sources: list[Path]) -> str:
    """12 digits that change with the settings and with any of the files that are read, by size and time of change."""
    stats = [(str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns) for path in sorted(sources)]
    text = json.dumps([settings, stats], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
