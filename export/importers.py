"""Checkpoint importers by declared format; adding one is a module with a loader and an entry in ``IMPORTERS``.

A loader takes the folder and the path of a frame layout, if one was given; it checks all there is to check first, and
makes an ``ImportedModel``.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path

import numpy as np
import torch

from ..toolkit.bundle.prompts import Prompts
from ..toolkit.config import FrameLayout
from ..toolkit.errors import CheckpointError, UsageError
from ..toolkit.settings import SamplingSettings
from .clips import random_clips, read_clips
from .huggingface.config import is_huggingface
from .source import BackboneSource, LlamaSource

__all__ = ["BUILT_IN", "IMPORTERS", "ImportedModel", "checkpoint_files", "load_model"]


CAR_SAMPLING = SamplingSettings(temperature=1.0, top_k=50, top_p=1.0, guidance=2.0)


@dataclass(frozen=True)
class ImportedModel:
    """A checkpoint, whose weights are read when they are needed. ``calibration`` and ``held_out`` (clips, positions)
    int64: prompt tokens and codes; None without any. ``notes``: what a user has to know of the result."""

    name: str
    source: BackboneSource
    layout: FrameLayout
    prompts: Prompts
    tokenizer: torch.nn.Module
    frame_rate: float
    sampling: SamplingSettings
    calibration: torch.Tensor
    held_out: torch.Tensor | None
    notes: tuple[str, ...] = ()


def _load_car(folder: Path, frame_layout: Path | None) -> ImportedModel:
    if frame_layout:
        found = "given for a checkpoint that has its own"
        raise UsageError("--frame-layout", found, "a Hugging Face checkpoint", "Leave it out.")
    from .car.checkpoint import load_checkpoint, load_clips

    checkpoint = load_checkpoint(folder)
    config = checkpoint.config
    prompts = config.prompt
    _check_prompts(folder / "config.json", prompts, config.frame_layout, config.backbone.vocab)
    clips = {name: load_clips(folder, name).tokens(config.frame_layout) for name in ("calibration", "heldout")}
    return ImportedModel(
        name=config.name,
        source=LlamaSource(checkpoint.llama),
        layout=config.frame_layout,
        prompts=prompts,
        tokenizer=checkpoint.tokenizer,
        frame_rate=config.frame_rate,
        sampling=CAR_SAMPLING,
        calibration=clips["calibration"],
        held_out=clips["heldout"],
    )


def _load_huggingface(folder: Path, frame_layout: Path | None) -> ImportedModel:
    """LLaMA with video tokens in its vocabulary. Without clips it is calibrated on random codes."""
    from .huggingface.config import read_config
    from .huggingface.layout import NAME, check_layout, read_layout
    from .huggingface.weights import HuggingFaceSource
    from .palette import code_colours

    config, path = read_config(folder / "config.json"), frame_layout or folder / NAME
    file = read_layout(path)
    layout = file.frame_layout
    check_layout(path, layout, config)
    _check_prompts(path, file.prompt, layout, config.backbone.vocab)
    notes = ["its codes are shown as colours: no decoder of pictures comes with such a checkpoint"]
    if file.clips:
        clips = read_clips(path.parent / file.clips, layout, "Correct it, or leave clips out.")
    else:
        prompts = np.stack([file.prompt.encode(phrase, layout.prompt_length) for phrase in file.prompt.phrases])
        clips = random_clips(layout, prompts, RANDOM_CLIPS)
        notes.append("calibrated on random codes: name clips in the frame layout")
    tokens = clips.tokens(layout)
    return ImportedModel(
        name=file.name,
        source=HuggingFaceSource(folder, config),
        layout=layout,
        prompts=file.prompt,
        tokenizer=code_colours(layout.codes),
        frame_rate=file.frame_rate,
        sampling=file.settings(),
        calibration=tokens,
        held_out=tokens if file.clips else None,
        notes=tuple(notes),
    )


def _check_prompts(path: Path, prompts: Prompts, layout: FrameLayout, vocab: int) -> None:
    """CheckpointError if a phrase cannot be encoded, there is none, or a word's token is a code's."""
    ids = (prompts.pad, prompts.start, *prompts.words.values())
    codes = range(layout.code_offset, layout.code_offset + layout.codes)
    outside = [token for token in ids if not 0 <= token < vocab or token in codes]
    if outside or not prompts.phrases:
        found = f"prompt token {outside[0]}" if outside else "no phrases"
        expected = f"tokens below {vocab} that are no codes ({codes.start} to {codes.stop - 1}), and phrases"
        raise CheckpointError(path, found, expected, "Correct `prompt`.")
    for phrase in prompts.phrases:
        try:
            prompts.encode(phrase, layout.prompt_length)
        except UsageError as error:
            raise CheckpointError(
                path, f"phrase {phrase!r}: {error.found}", error.expected, "Correct `prompt`."
            ) from error


HUGGINGFACE = "huggingface"  # what such files have no word for: told by their architectures
RANDOM_CLIPS = 8

IMPORTERS: dict[str, Callable[[Path, Path | None], ImportedModel]] = {
    "fastcar.checkpoint": _load_car,
    HUGGINGFACE: _load_huggingface,
}
BUILT_IN = {"car": "car/checkpoint"}


def load_model(model: str | Path, frame_layout: Path | None = None, layers: int | None = None) -> ImportedModel:
    """A built-in model by name, or a checkpoint folder. CheckpointError if it is neither or cannot be used.

    ``frame_layout``: for checkpoints whose own files do not say where the video lies. ``layers``: only so many of the
    first decoder layers, for a quick trial; UsageError if there are not as many.
    """
    folder = _folder(model)
    imported = IMPORTERS[_declared_format(folder)](folder, frame_layout)
    if layers is None:
        return imported
    count = imported.source.config.layers
    if not 1 <= layers <= count:
        raise UsageError("--layers", str(layers), f"1 to {count}, the layers of {imported.name}", "Ask for fewer.")
    if layers == count:
        return imported
    note = f"the first {layers} of {count} layers only: its videos mean nothing"
    return replace(imported, source=imported.source.first(layers), notes=(*imported.notes, note))


def checkpoint_files(model: str | Path, frame_layout: Path | None = None) -> list[Path]:
    """Every file that an import of ``model`` may read."""
    folder = _folder(model)
    files_ = [path for path in folder.rglob("*") if path.is_file()]
    return [*files_, *([frame_layout] if frame_layout else [])]


def _folder(model: str | Path) -> Path:
    return Path(str(files(__package__).joinpath(BUILT_IN[str(model)]))) if str(model) in BUILT_IN else Path(model)


def _declared_format(folder: Path) -> str:
    known = ", ".join(IMPORTERS)
    if not folder.is_dir():
        found = "is a file" if folder.is_file() else "no such folder"
        raise CheckpointError(folder, found, f"a checkpoint folder or one of: {', '.join(BUILT_IN)}", "Check the name.")
    config = folder / "config.json"
    try:
        declared = json.loads(config.read_text("utf-8"))
    except FileNotFoundError:
        raise CheckpointError(
            config, "missing", "a config.json in the checkpoint folder", "Is it the right folder?"
        ) from None
    except OSError as error:
        raise CheckpointError(
            config, f"cannot be read ({error.strerror})", "a JSON file", "Check the folder."
        ) from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(config, f"not JSON ({error})", "a checkpoint's config.json", "Copy it again.") from error
    if is_huggingface(declared):
        return HUGGINGFACE
    name = declared.get("format") if isinstance(declared, dict) else None
    if not isinstance(name, str) or name not in IMPORTERS:
        raise CheckpointError(config, f"format {name!r}", f"one of: {known}", "Convert the checkpoint to one of these.")
    return name
