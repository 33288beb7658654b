"""The manifest: what is in a bundle, how it was made, and the hash of every file."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict, Field, ValidationError, model_validator

from ..config import BackboneConfig, Criterion, DepthConfig, FrameLayout, Frozen, TasHeads, check_separators
from ..errors import BundleError, UsageError
from ..numerics.similarity import SIMILARITY_UNIT
from ..program.engine import EngineConfig
from ..settings import SamplingSettings
from ..validation import first_fault

__all__ = ["SCHEMA", "FileEntry", "Manifest", "file_entry"]

SCHEMA = 1
BLOCK = 1 << 20


class FileEntry(Frozen):
    """sha256 and size in bytes of one file."""

    sha256: str
    bytes: int


class Manifest(Frozen):
    """``manifest.json`` of a bundle. ``tas_unit``: TAS of one integer score, a layer each; of the criterion
    ``mlp-input`` the cosine, ``SIMILARITY_UNIT``. Thresholds are in the same unit. ``tas_head_weights``: what the
    multipliers of the score were made with, a layer and head each; None: heads alike.

    ``depth``: of a model whose positions hold several codes; None: one code, an entry of the vocabulary.
    ``thresholds``: the bundle's default, a layer each (None: the layer never replays), for rows that decide by
    ``policy``. ``record``: what was measured
    when the bundle was made. ``board``, ``overlay`` and its ``engine``: what the packing is for; None where only
    emulation is meant.
    An infinite threshold is written as "Infinity" or "-Infinity". ValueError when the parts contradict each other.
    """

    model_config = ConfigDict(ser_json_inf_nan="strings")

    schema_version: int = Field(SCHEMA, alias="schema")
    name: str
    fastcar: str
    config: BackboneConfig
    depth: DepthConfig | None = None
    frame_layout: FrameLayout
    frame_rate: float = Field(gt=0)
    recipe: dict[str, Any]
    sampling: SamplingSettings
    criterion: Criterion = "tas"
    tas_query: Literal["post_rope", "pre_rope"]
    tas_heads: TasHeads = "mean"
    tas_head_weights: tuple[tuple[float, ...], ...] | None = None
    tas_unit: tuple[float, ...]
    thresholds: tuple[float | None, ...]
    policy: Literal["independent", "mean", "all"] = "independent"
    board: str | None = None
    overlay: str | None = None
    engine: EngineConfig | None = None
    record: dict[str, Any]
    files: dict[str, FileEntry]

    @model_validator(mode="after")
    def _consistent(self) -> Manifest:
        layers, layout = self.config.layers, self.frame_layout
        for name in ("tas_unit", "thresholds"):
            if len(getattr(self, name)) != layers:
                raise ValueError(f"{name} has {len(getattr(self, name))} values, the model {layers} layers")
        if not all(0 < unit < float("inf") for unit in self.tas_unit):
            raise ValueError("tas_unit holds a value that is not positive")
        if self.criterion == "mlp-input":
            if set(self.tas_unit) != {SIMILARITY_UNIT}:
                raise ValueError(f"tas_unit is not that of a cosine, {SIMILARITY_UNIT}, in every layer")
            if self.overlay or self.engine:
                raise ValueError(f"packed for an overlay, whose engine decides by TAS, not by {self.criterion}")
        if self.tas_head_weights is not None:
            self._check_head_weights(self.tas_head_weights)
        if self.depth is None and layout.code_offset + layout.codes > self.config.vocab:
            raise ValueError(
                f"codes up to {layout.code_offset + layout.codes}, beyond the vocabulary of {self.config.vocab}"
            )
        if self.depth is not None and layout.separators:
            raise ValueError("separators between positions of several codes")
        if wrong := check_separators(layout, self.config.vocab):
            raise ValueError(wrong)
        return self

    def _check_head_weights(self, weights: tuple[tuple[float, ...], ...]) -> None:
        layers, heads = self.config.layers, self.config.heads
        if self.tas_heads != "mean":
            raise ValueError(f"tas_head_weights beside tas_heads {self.tas_heads}: only a mean is weighted")
        if len(weights) != layers or any(len(layer) != heads for layer in weights):
            raise ValueError(f"tas_head_weights are not {layers} times {heads}, one for each layer and head")
        if not all(any(layer) and all(map(math.isfinite, layer)) for layer in weights):
            raise ValueError("tas_head_weights hold a value that is not finite, or zeros alone in a layer")

    @classmethod
    def read(cls, path: Path) -> Manifest:
        """BundleError if the file is missing, is not a manifest, or is of another schema."""
        expected = f"a manifest of schema {SCHEMA}"
        try:
            text = path.read_text("utf-8")
            found = json.loads(text)
            if isinstance(found, dict) and found.get("schema", SCHEMA) != SCHEMA:  # first: its fields may be others
                raise BundleError(
                    path, f"schema {found['schema']!r}", f"schema {SCHEMA}", "Export again with this version."
                )
            return cls.model_validate_json(text)
        except (FileNotFoundError, NotADirectoryError):
            raise BundleError(
                path, "no such file", "a bundle folder", "Make one with: fastcar export car --out DIR"
            ) from None
        except OSError as error:
            raise BundleError(path, f"cannot be read ({error.strerror})", expected, "Copy the bundle again.") from error
        except ValidationError as error:
            raise BundleError(path, " ".join(first_fault(error)).strip(), expected, "Export again.") from error
        except (UsageError, ValueError, RecursionError) as error:  # settings out of range; not JSON, not text
            raise BundleError(path, str(error), expected, "Export again.") from error

    def write(self, path: Path) -> None:
        path.write_text(self.model_dump_json(indent=1, by_alias=True) + "\n", "utf-8")


def file_entry(path: Path) -> FileEntry:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return FileEntry(sha256=digest.hexdigest(), bytes=path.stat().st_size)
