"""Shapes of models to plan for: built-in ones, or those of a checkpoint or a bundle; no weights are read."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import ValidationError, model_validator

from ...boards.load import tomllib
from ...export.huggingface.config import is_huggingface, read_config
from ...export.huggingface.layout import NAME, check_layout, read_layout
from ...export.vila_u.config import SAMPLING, is_vila_u
from ...export.vila_u.config import read_config as read_vila_u
from ...export.vila_u.layout import frame_layout
from ...export.vila_u.prompt import read_prompts
from ..bundle.manifest import Manifest
from ..config import BackboneConfig, DepthConfig, FrameLayout, Frozen, check_separators
from ..errors import CheckpointError, UsageError
from ..validation import first_fault

__all__ = ["ModelShape", "file_word", "load_shape", "shape_names"]

FOLDER = Path(__file__).parent / "shapes"
CAR = "car"  # its shape is that of the checkpoint that comes with the project
MANIFEST, CHECKPOINT = "manifest.json", "config.json"


class ModelShape(Frozen):
    """What is computed for a position. ``guided``: two rows a clip. ``source``: where the numbers come from.

    With a ``depth`` transformer the backbone has no head of its own, and codes are no entries of its vocabulary.
    """

    name: str
    title: str = ""
    source: str = ""
    note: str = ""
    backbone: BackboneConfig
    frame_layout: FrameLayout
    guided: bool = True
    depth: DepthConfig | None = None
    recipe: str | None = None  # a bundle's

    @model_validator(mode="after")
    def _within_the_vocabulary(self) -> ModelShape:
        if self.depth is not None and self.frame_layout.separators:
            raise ValueError("frame_layout: separators between positions of several codes")
        if wrong := check_separators(self.frame_layout, self.backbone.vocab):
            raise ValueError(f"frame_layout: {wrong}")
        return self


def shape_names() -> tuple[str, ...]:
    """The built-in shapes, in alphabetical order."""
    return tuple(sorted([CAR, *(file.stem for file in FOLDER.glob("*.toml"))]))


def file_word(name: str) -> str:
    """For names of folders and engines: a model may be called anything, with slashes as well."""
    return re.sub(r"[^\w.-]+", "_", name)[:80] or "model"


def load_shape(model: str | Path) -> ModelShape:
    """A built-in shape by name, a bundle or checkpoint folder, or the path of a ``.toml`` like the built-in ones.

    UsageError, BundleError or CheckpointError if it is none of them.
    """
    name = str(model)
    if name.lower() in shape_names():
        return _built_in(name.lower())
    path = Path(model)
    if name.endswith(".toml"):
        return _read(path)
    if (path / MANIFEST).exists():
        return _of_bundle(path)
    if (path / CHECKPOINT).exists():
        return _of_checkpoint(path / CHECKPOINT, path.name)
    found = "a folder without manifest.json or config.json" if path.is_dir() else "not known, and no such folder"
    expected = f"one of {', '.join(shape_names())}, a bundle, a checkpoint folder, or a shape file ending in .toml"
    raise UsageError("model", f"{name!r} is {found}", expected, "Correct the name or the path.")


def _built_in(name: str) -> ModelShape:
    if name == CAR:
        config = Path(str(files("fastcar.export.car").joinpath("checkpoint"))) / CHECKPOINT
        return _of_checkpoint(config, CAR)
    return _read(FOLDER / f"{name}.toml")


def _read(path: Path) -> ModelShape:
    try:
        return ModelShape.model_validate({"name": path.stem, **tomllib.loads(path.read_text("utf-8"))})
    except OSError as error:
        fix = f"Correct the path, or use one of {', '.join(shape_names())}."
        raise UsageError(path, f"cannot be read ({error.strerror})", "a shape file", fix) from error
    except ValidationError as error:
        raise UsageError(path, _first(error), "keys as in llama-1.1b.toml", "Correct the file.") from error
    except (ValueError, RecursionError) as error:  # not TOML, not text
        raise UsageError(path, f"is not TOML: {error}", "keys as in llama-1.1b.toml", "Correct the file.") from error


def _of_bundle(folder: Path) -> ModelShape:
    manifest = Manifest.read(folder / MANIFEST)
    if manifest.criterion != "tas":  # what replay would save on a board is not known: it is decided after attention
        found, expected = f"replay decided by {manifest.criterion}", "by TAS, all that an overlay's engine decides by"
        raise UsageError(folder, found, expected, "Plan for a bundle exported without --criterion.")
    return ModelShape(
        name=manifest.name,
        title=f"bundle {folder}",
        backbone=manifest.config,
        frame_layout=manifest.frame_layout,
        guided=manifest.sampling.guided,
        depth=manifest.depth,
        recipe=manifest.recipe.get("name"),
    )


def _of_checkpoint(path: Path, name: str) -> ModelShape:
    """Of the project's own format, or Hugging Face's; only its description is read."""
    expected, fix = "backbone and frame_layout, as in the project's own checkpoints", "Is it the right folder?"
    try:
        declared: Any = json.loads(path.read_text("utf-8"))
        if is_vila_u(declared):
            return _of_vila_u(path.parent)
        if is_huggingface(declared):
            return _of_huggingface(path)
        parts = {key: declared[key] for key in ("backbone", "frame_layout")}
        return ModelShape.model_validate({"name": name, "title": f"checkpoint {name}", **parts})
    except OSError as error:
        raise CheckpointError(path, f"cannot be read ({error.strerror})", expected, fix) from error
    except ValidationError as error:
        raise CheckpointError(path, _first(error), expected, fix) from error
    except (ValueError, RecursionError, KeyError, TypeError) as error:
        raise CheckpointError(path, f"does not describe a model ({error!r})", expected, fix) from error


def _of_huggingface(path: Path) -> ModelShape:
    """With the frame layout beside it."""
    config, place = read_config(path), path.parent / NAME
    layout = read_layout(place)
    check_layout(place, layout.frame_layout, config)
    return ModelShape(
        name=layout.name,
        title=f"checkpoint {path.parent.name}",
        backbone=config.backbone,
        frame_layout=layout.frame_layout,
        guided=layout.settings().guided,
    )


def _of_vila_u(folder: Path) -> ModelShape:
    config = read_vila_u(folder)
    return ModelShape(
        name=folder.resolve().name,
        title=f"checkpoint {folder.name}",
        backbone=config.llama.backbone,
        frame_layout=frame_layout(folder, config, read_prompts(folder, config)),
        guided=SAMPLING.guided,
        depth=config.depth,
    )


def _first(error: ValidationError) -> str:
    where, why = first_fault(error)
    return f"{where}: {why}" if where else why
