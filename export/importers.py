"""Checkpoint importers by declared format; adding one is a module with a loader and an entry here."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import torch

from ..toolkit.bundle.prompts import Prompts
from ..toolkit.config import FrameLayout
from ..toolkit.errors import CheckpointError, UsageError
from ..toolkit.settings import SamplingSettings
from .llama import Llama

__all__ = ["BUILT_IN", "IMPORTERS", "ImportedModel", "load_model"]


CAR_SAMPLING = SamplingSettings(temperature=1.0, top_k=50, top_p=1.0, guidance=2.0)


@dataclass(frozen=True)
class ImportedModel:
    """A checkpoint in memory. ``calibration`` and ``held_out`` (clips, positions) int64: prompt tokens and codes."""

    name: str
    llama: Llama
    layout: FrameLayout
    prompts: Prompts
    tokenizer: torch.nn.Module
    frame_rate: float
    sampling: SamplingSettings
    calibration: torch.Tensor
    held_out: torch.Tensor


def _load_car(folder: Path) -> ImportedModel:
    from .car.checkpoint import load_checkpoint, load_clips

    checkpoint = load_checkpoint(folder)
    config = checkpoint.config
    prompts = config.prompt
    _check_prompts(folder / "config.json", prompts, config.frame_layout)
    clips = {name: load_clips(folder, name).tokens(config.frame_layout) for name in ("calibration", "heldout")}
    return ImportedModel(
        name=config.name,
        llama=checkpoint.llama,
        layout=config.frame_layout,
        prompts=prompts,
        tokenizer=checkpoint.tokenizer,
        frame_rate=config.frame_rate,
        sampling=CAR_SAMPLING,
        calibration=clips["calibration"],
        held_out=clips["heldout"],
    )


def _check_prompts(path: Path, prompts: Prompts, layout: FrameLayout) -> None:
    """CheckpointError if a phrase cannot be encoded, there is none, or a word's token is a code's."""
    ids = (prompts.pad, prompts.start, *prompts.words.values())
    outside = [token for token in ids if not 0 <= token < layout.code_offset]
    if outside or not prompts.phrases:
        found = f"prompt token {outside[0]}" if outside else "no phrases"
        expected = f"tokens below code_offset {layout.code_offset}, and phrases"
        raise CheckpointError(path, found, expected, "Correct `prompt`.")
    for phrase in prompts.phrases:
        try:
            prompts.encode(phrase, layout.prompt_length)
        except UsageError as error:
            raise CheckpointError(
                path, f"phrase {phrase!r}: {error.found}", error.expected, "Correct `prompt`."
            ) from error


IMPORTERS: dict[str, Callable[[Path], ImportedModel]] = {"fastcar.checkpoint": _load_car}
BUILT_IN = {"car": "car/checkpoint"}


def load_model(model: str | Path) -> ImportedModel:
    """A built-in model by name, or a checkpoint folder. CheckpointError if it is neither or cannot be used."""
    folder = Path(str(files(__package__).joinpath(BUILT_IN[str(model)]))) if str(model) in BUILT_IN else Path(model)
    return IMPORTERS[_declared_format(folder)](folder)


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
    name = declared.get("format") if isinstance(declared, dict) else None
    if not isinstance(name, str) or name not in IMPORTERS:
        raise CheckpointError(config, f"format {name!r}", f"one of: {known}", "Convert the checkpoint to one of these.")
    return name
