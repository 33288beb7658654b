"""The manifest: what is in a bundle, how it was made, and the hash of every file."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from ..config import BackboneConfig, FrameLayout, Frozen
from ..errors import BundleError
from ..settings import SamplingSettings

__all__ = ["SCHEMA", "FileEntry", "Manifest", "file_entry"]

SCHEMA = 1
BLOCK = 1 << 20


class FileEntry(Frozen):
    """sha256 and size in bytes of one file."""

    sha256: str
    bytes: int


class Manifest(Frozen):
    """``manifest.json`` of a bundle. ``tas_unit``: TAS of one integer score, a layer each.

    ``thresholds``: the bundle's default, a layer each (None: the layer never replays). ``record``: what was measured
    when the bundle was made. ``board`` and ``overlay``: what the packing is for; None where only emulation is meant.
    """

    schema_version: int = Field(SCHEMA, alias="schema")
    name: str
    fastcar: str
    config: BackboneConfig
    frame_layout: FrameLayout
    frame_rate: float
    recipe: dict[str, Any]
    sampling: SamplingSettings
    tas_query: str
    tas_unit: tuple[float, ...]
    thresholds: tuple[float | None, ...]
    board: str | None = None
    overlay: str | None = None
    record: dict[str, Any]
    files: dict[str, FileEntry]

    @classmethod
    def read(cls, path: Path) -> Manifest:
        """BundleError if the file is missing, is not a manifest, or is of another schema."""
        try:
            manifest = cls.model_validate_json(path.read_text())
        except FileNotFoundError:
            raise BundleError(path, "no such file", "a bundle folder", "Make one with: fastcar export car --out DIR") from None
        except (ValidationError, UnicodeDecodeError) as error:
            reason = error.errors()[0] if isinstance(error, ValidationError) else {"loc": (), "msg": str(error)}
            where = ".".join(map(str, reason["loc"]))
            raise BundleError(path, f"{where} {reason['msg']}".strip(), f"a manifest of schema {SCHEMA}", "Export again.") from error
        if manifest.schema_version != SCHEMA:
            raise BundleError(path, f"schema {manifest.schema_version}", f"schema {SCHEMA}", "Export again with this version.")
        return manifest

    def write(self, path: Path) -> None:
        path.write_text(self.model_dump_json(indent=1, by_alias=True) + "\n")


def file_entry(path: Path) -> FileEntry:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return FileEntry(sha256=digest.hexdigest(), bytes=path.stat().st_size)
