"""Checkpoint importers by declared format; adding one is a module ``importer`` and an entry in ``IMPORTERS``.

A loader takes the folder and the path of a frame layout, if one was given; it checks all there is to check first, and
makes an ``ImportedModel``, whose weights are read later.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

from ..toolkit.config import MAX_POSITIONS, FrameLayout
from ..toolkit.errors import CheckpointError, UsageError
from .car.importer import load as load_car
from .huggingface.config import ARCHITECTURES, FIX, is_huggingface, is_supported
from .huggingface.importer import load as load_huggingface
from .imported import ImportedModel
from .vila_u.config import MODEL_TYPES, is_vila_u
from .vila_u.importer import load as load_vila_u

__all__ = ["BUILT_IN", "IMPORTERS", "ImportedModel", "checkpoint_files", "load_model"]

HUGGINGFACE = "huggingface"  # what such files have no word for: told by their architectures
VILA_U = "vila_u"

IMPORTERS: dict[str, Callable[[Path, Path | None], ImportedModel]] = {
    "fastcar.checkpoint": load_car,
    HUGGINGFACE: load_huggingface,
    VILA_U: load_vila_u,
}
SUPPORTED = (
    f"architectures {', '.join(ARCHITECTURES)}; model_type {' or '.join(MODEL_TYPES)}; or format fastcar.checkpoint"
)
BUILT_IN = {"car": "car/checkpoint"}


def load_model(
    model: str | Path, frame_layout: Path | None = None, layers: int | None = None, max_frames: int | None = None
) -> ImportedModel:
    """A built-in model by name, or a checkpoint folder. CheckpointError if it is neither or cannot be used.

    ``frame_layout``: for checkpoints whose own files do not say where the video lies. ``layers``: only so many of the
    first decoder layers, for a quick trial; UsageError if there are not as many. ``max_frames``: room for clips of so
    many frames, not only those of the training; UsageError if it is fewer, or too many to compute exactly.
    """
    folder = _folder(model)
    imported = IMPORTERS[_declared_format(folder)](folder, frame_layout)
    if max_frames is not None:
        imported = replace(imported, layout=_with_room(imported.name, imported.layout, max_frames))
    if layers is None:
        return imported
    count = imported.source.config.layers
    if not 1 <= layers <= count:
        raise UsageError("--layers", str(layers), f"1 to {count}, the layers of {imported.name}", "Ask for fewer.")
    if layers == count:
        return imported
    note = f"the first {layers} of {count} layers only: its videos mean nothing"
    return replace(imported, source=imported.source.first(layers), notes=(*imported.notes, note))


def _with_room(name: str, layout: FrameLayout, max_frames: int) -> FrameLayout:
    most = (MAX_POSITIONS - layout.prompt_length) // layout.tokens_per_frame
    if not layout.frames <= max_frames <= most:
        expected = f"{layout.frames}, the frames {name} was trained for, to {most}"
        fix = "Leave it out, or ask for more." if max_frames < layout.frames else "Ask for fewer frames."
        raise UsageError("--max-frames", str(max_frames), expected, fix)
    return layout.model_copy(update={"max_frames": max_frames})


def checkpoint_files(model: str | Path, imported: ImportedModel) -> list[Path]:
    """Every file that an import of ``model`` may read, in linked folders too.

    Not what is hidden: histories, caches, and an unfinished export into the checkpoint's own folder.
    """
    found, seen = set(imported.files), set()
    for place, folders, names in os.walk(_folder(model), followlinks=True):
        real = os.path.realpath(place)
        folders[:] = [name for name in folders if not name.startswith(".") and real not in seen]
        seen.add(real)
        found.update(path for name in names if not name.startswith(".") and (path := Path(place, name)).is_file())
    return sorted(found)


def _folder(model: str | Path) -> Path:
    return Path(str(files(__package__).joinpath(BUILT_IN[str(model)]))) if str(model) in BUILT_IN else Path(model)


def _declared_format(folder: Path) -> str:
    if not folder.is_dir():
        found = "is a file" if folder.is_file() else "no such folder"
        raise CheckpointError(folder, found, f"a checkpoint folder or one of: {', '.join(BUILT_IN)}", "Check the name.")
    config = folder / "config.json"
    try:
        declared = json.loads(config.read_text("utf-8"))
    except FileNotFoundError:
        found, fix = "missing", "Is it the right folder?"
        if (folder / "params.json").is_file():
            found = "missing; params.json is of Meta's own layout, whose rotary pairs lie side by side"
            fix = "Convert it to Hugging Face's layout (convert_llama_weights_to_hf.py of transformers)."
        raise CheckpointError(config, found, "a config.json in the checkpoint folder", fix) from None
    except OSError as error:
        raise CheckpointError(
            config, f"cannot be read ({error.strerror})", "a JSON file", "Check the folder."
        ) from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(config, f"not JSON ({error})", "a checkpoint's config.json", "Copy it again.") from error
    if is_vila_u(declared):
        return VILA_U
    if is_huggingface(declared):
        if not is_supported(architectures := declared["architectures"]):
            raise CheckpointError(config, f"architectures {architectures!r}", SUPPORTED, FIX)
        return HUGGINGFACE
    name = declared.get("format") if isinstance(declared, dict) else None
    if not isinstance(name, str) or name not in IMPORTERS:
        found = f"format {name!r}, and no architectures"
        raise CheckpointError(config, found, SUPPORTED, FIX)
    return name
