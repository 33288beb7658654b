"""Clips in tokens: what quantization is calibrated with and quality is measured on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from ..toolkit.config import FrameLayout
from ..toolkit.errors import CheckpointError
from ..toolkit.numerics.depth import TEXT
from .shards import TensorStore

__all__ = ["WHOLE", "ClipSet", "code_frames", "positions_of_codes", "random_clips", "read_clips"]

WHOLE = (torch.uint8, torch.int8, torch.uint16, torch.int16, torch.int32, torch.int64)


@dataclass(frozen=True)
class ClipSet:
    """``codes`` (clips, frames, cells) and ``prompts`` (clips, prompt_length): whole numbers, codes and token ids."""

    codes: np.ndarray
    prompts: np.ndarray

    def tokens(self, layout: FrameLayout) -> torch.Tensor:
        """Token ids (clips, positions) int64 of the flattened clips, with their separators."""
        return torch.from_numpy(np.concatenate([self.prompts, layout.flattened(self.codes)], 1))


def read_clips(path: Path, layout: FrameLayout, vocab: int, fix: str) -> ClipSet:
    """A safetensors file of ``codes`` and ``prompts``. CheckpointError if it is not there, or one of them is missing,
    of another shape, or holds a code or a prompt token that cannot be; ``vocab``: tokens of the model; ``fix``: what to
    do then."""
    if not path.exists():
        raise CheckpointError(path, "no such file", "the clips that the frame layout names", fix)
    store = TensorStore(path)
    shapes = {"codes": (layout.frames, layout.cells), "prompts": (layout.prompt_length,)}
    limits = {"codes": layout.codes, "prompts": vocab}
    stored = {}
    for key, shape in shapes.items():
        info = store.tensors.get(key)
        if info is None or info.shape[1:] != shape or not info.shape[0]:
            found = "missing" if info is None else info.shape
            raise CheckpointError(path, f"tensor {key} is {found}", f"(clips, {', '.join(map(str, shape))})", fix)
        if info.dtype not in WHOLE:
            raise CheckpointError(path, f"tensor {key} is of {info.dtype}", "whole numbers, such as int64", fix)
        stored[key] = store.read(key)
        whole = stored[key].to(torch.int64)  # torch has no least of uint16
        lowest, highest = int(whole.min()), int(whole.max())
        if lowest < 0 or highest >= limits[key]:
            wrong = lowest if lowest < 0 else highest
            raise CheckpointError(path, f"tensor {key} holds {wrong}", f"less than {limits[key]}, not below 0", fix)
    clips = {key: len(tensor) for key, tensor in stored.items()}
    if clips["codes"] != clips["prompts"]:
        found = f"{clips['codes']} clips in codes, {clips['prompts']} in prompts"
        raise CheckpointError(path, found, "a prompt for each clip", fix)
    return ClipSet(stored["codes"].numpy(), stored["prompts"].numpy())


def random_clips(layout: FrameLayout, prompts: np.ndarray, clips: int, seed: int = 0) -> ClipSet:
    """For a checkpoint without any: every code as likely as another, under ``prompts`` (known ones, prompt_length)."""
    codes = np.random.default_rng(seed).integers(layout.codes, size=(clips, layout.frames, layout.cells))
    return ClipSet(codes, prompts[np.arange(clips) % len(prompts)])


def positions_of_codes(prompt: Sequence[int] | np.ndarray, codes: np.ndarray) -> np.ndarray:
    """(positions, 1 + D) int64 of one clip of a model with a depth transformer: a token and ``TEXT``, or ``TEXT`` and
    the ``codes`` (n, D)."""
    clip = np.full((len(prompt) + len(codes), 1 + codes.shape[1]), TEXT, np.int64)
    clip[: len(prompt), 0] = prompt
    clip[len(prompt) :, 1:] = codes
    return clip


def code_frames(tokens: torch.Tensor, layout: FrameLayout) -> torch.Tensor:
    """Codes (frames, height, width) of whole clips (clips, positions)."""
    places = tokens[:, layout.prompt_length :].reshape(-1, layout.tokens_per_frame)
    return (places[:, layout.cell_places] - layout.code_offset).reshape(-1, *layout.grid)
