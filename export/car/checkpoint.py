"""The checkpoint folder of `car`: written whole or not at all, checked whole before anything is done with it.

config.json                shape of the model, prompts, tokenizer (``CarConfig``)
backbone.safetensors       float16, the names of ``Llama.state_dict()``
tokenizer.safetensors      float16, the names of ``Tokenizer.state_dict()``: encoder, codebook, decoder
calibration.safetensors    training clips: ``codes`` (clips, frames, cells) uint16, ``prompts`` (clips, length) int64
heldout.safetensors        held-out clips, likewise
heldout.png                frames of the first held-out clips before the tokenizer, a clip a row
metrics.json, README.md    the figures of the training run, and the model card that states them
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field, ValidationError
from safetensors.torch import save_file

from ...toolkit.bundle.prompts import Prompts
from ...toolkit.config import BackboneConfig, FrameLayout, Frozen
from ...toolkit.errors import CheckpointError, OutputError
from ...toolkit.validation import first_fault
from ..clips import ClipSet, read_clips
from ..llama import Llama
from ..shards import TensorStore, check_tensors, read_finite
from .tokenizer import DecoderConfig, EncoderConfig, Tokenizer

__all__ = ["CarCheckpoint", "CarConfig", "ClipSet", "load_checkpoint", "load_clips", "load_frames", "save_checkpoint"]

_RETRAIN = "Restore the file, or write the checkpoint again with `fastcar train car`."


class CarConfig(Frozen):
    """``config.json``. ``frame_rate`` in frames a second."""

    format: Literal["fastcar.checkpoint"] = "fastcar.checkpoint"
    version: Literal[1] = 1
    name: str
    backbone: BackboneConfig
    frame_layout: FrameLayout
    prompt: Prompts
    encoder: EncoderConfig
    decoder: DecoderConfig
    frame_rate: float = Field(gt=0, le=1000)


@dataclass(frozen=True)
class CarCheckpoint:
    """A checkpoint in memory, in float32 and evaluation mode."""

    config: CarConfig
    llama: Llama
    tokenizer: Tokenizer


def load_checkpoint(folder: Path | str) -> CarCheckpoint:
    """Read and check everything; CheckpointError names the file, and the tensor and index where there is one."""
    folder = Path(folder)
    config = _load_config(folder)
    with torch.device("meta"):
        expected_llama = Llama(config.backbone, config.frame_layout.positions).state_dict()
        expected_tokenizer = Tokenizer(config.encoder, config.decoder, config.frame_layout.codes).state_dict()
    backbone = _load_tensors(folder / "backbone.safetensors", expected_llama)
    codec = _load_tensors(folder / "tokenizer.safetensors", expected_tokenizer)
    llama = Llama(config.backbone, config.frame_layout.positions)
    llama.load_state_dict(backbone)
    tokenizer = Tokenizer(config.encoder, config.decoder, config.frame_layout.codes)
    tokenizer.load_state_dict(codec)
    return CarCheckpoint(config, llama.eval(), tokenizer.eval())


def _load_config(folder: Path) -> CarConfig:
    path = folder / "config.json"
    try:
        return CarConfig.model_validate_json(path.read_bytes(), strict=True)
    except OSError as error:
        raise CheckpointError(
            path, f"cannot be read ({error.strerror})", "the checkpoint's configuration", _RETRAIN
        ) from error
    except ValidationError as error:
        where, why = first_fault(error)
        raise CheckpointError(
            path, f"{where or 'the file'}: {why}", "a fastcar.checkpoint of version 1", _RETRAIN
        ) from error


def _load_tensors(path: Path, expected: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Tensors of ``path`` in float32, with exactly the names and shapes of ``expected``, all finite."""
    store = TensorStore(path)
    check_tensors(store, {name: tuple(tensor.shape) for name, tensor in expected.items()}, _RETRAIN)
    return {name: read_finite(store, name, _RETRAIN).float() for name in expected}


def load_clips(folder: Path | str, name: Literal["calibration", "heldout"]) -> ClipSet:
    """The clips of ``name``.safetensors; CheckpointError if a code or a prompt token is out of range."""
    folder = Path(folder)
    config = _load_config(folder)
    return read_clips(folder / f"{name}.safetensors", config.frame_layout, config.backbone.vocab, _RETRAIN)


def load_frames(folder: Path | str) -> np.ndarray:
    """Original frames of the first held-out clips (clips, frames, height, width, 3) uint8."""
    from PIL import Image

    path, layout = Path(folder) / "heldout.png", _load_config(Path(folder)).frame_layout
    try:
        strip = np.asarray(Image.open(path).convert("RGB"))
    except OSError as error:
        raise CheckpointError(path, f"cannot be read ({error})", "a PNG image", _RETRAIN) from error
    height, width = 8 * layout.grid[0], 8 * layout.grid[1]
    if strip.shape[0] % height or strip.shape[1] != layout.frames * width:
        raise CheckpointError(
            path, f"is {strip.shape}", f"rows of {layout.frames} frames of {height} x {width}", _RETRAIN
        )
    return strip.reshape(-1, height, layout.frames, width, 3).swapaxes(1, 2)


def save_checkpoint(
    folder: Path | str,
    checkpoint: CarCheckpoint,
    clips: Mapping[str, ClipSet] | None = None,
    frames: np.ndarray | None = None,
    metrics: Mapping[str, Any] | None = None,
    card: str = "",
) -> None:
    """Write a checkpoint folder, replacing the one that is there once the new one is complete.

    ``clips``: "calibration" and "heldout"; ``frames`` (clips, frames, height, width, 3) uint8.
    OutputError if the folder cannot be written.
    """
    folder = Path(folder)
    partial = folder.with_name(f".{folder.name}.partial")
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        _write(partial, checkpoint, clips or {}, frames, metrics or {}, card)
        _replace(partial, folder)
    except OSError as error:
        raise OutputError(
            folder,
            f"cannot be written ({error.strerror or error})",
            "a writable folder with room",
            "Choose another --out.",
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _replace(partial: Path, folder: Path) -> None:
    old = folder.with_name(f".{folder.name}.old")
    if folder.exists():
        folder.rename(old)
    partial.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


def _half(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.half().contiguous() for name, tensor in module.state_dict().items()}


def _write(
    folder: Path,
    checkpoint: CarCheckpoint,
    clips: Mapping[str, ClipSet],
    frames: np.ndarray | None,
    metrics: Mapping[str, Any],
    card: str,
) -> None:
    (folder / "config.json").write_text(checkpoint.config.model_dump_json(indent=1) + "\n", "utf-8")
    save_file(_half(checkpoint.llama), folder / "backbone.safetensors")
    save_file(_half(checkpoint.tokenizer), folder / "tokenizer.safetensors")
    for name, clip_set in clips.items():
        tensors = {
            "codes": torch.from_numpy(clip_set.codes.astype(np.uint16)),
            "prompts": torch.from_numpy(clip_set.prompts).contiguous(),
        }
        save_file(tensors, folder / f"{name}.safetensors")
    for path in folder.glob("*.safetensors"):
        path.chmod(0o644)  # safetensors makes files that only their owner can read
    if frames is not None:
        from PIL import Image

        rows, columns, height, width, _ = frames.shape
        strip = frames.swapaxes(1, 2).reshape(rows * height, columns * width, 3)
        Image.fromarray(strip).save(folder / "heldout.png", optimize=True)
    if metrics:
        (folder / "metrics.json").write_text(json.dumps(metrics, indent=1) + "\n")
    if card:
        (folder / "README.md").write_text(card, "utf-8")
