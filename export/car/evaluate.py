"""Held-out figures of a checkpoint: reconstruction, use of the codebook, cross-entropy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ...toolkit.config import FrameLayout
from ..llama import Llama
from .baseline import CopyBaseline
from .checkpoint import CarCheckpoint, ClipSet
from .tokenizer import Tokenizer
from .train_backbone import code_losses
from .train_tokenizer import psnr

__all__ = ["codebook_figures", "cross_entropy", "encode_frames", "evaluate", "frame_losses", "reconstruction_psnr"]


@torch.no_grad()
def encode_frames(
    tokenizer: Tokenizer, frames: np.ndarray, advance: Callable[[], object] = lambda: None, batch: int = 128
) -> np.ndarray:
    """frames (n, height, width, 3) uint8 -> codes (n, height / 8, width / 8) uint16; ``advance`` after each batch."""
    parts = []
    for first in range(0, len(frames), batch):
        chosen = torch.from_numpy(np.ascontiguousarray(frames[first : first + batch]))
        parts.append(tokenizer.encode(chosen).numpy().astype(np.uint16))
        advance()
    return np.concatenate(parts)


@torch.no_grad()
def reconstruction_psnr(tokenizer: Tokenizer, frames: np.ndarray, batch: int = 128) -> float:
    """frames (n, height, width, 3) uint8 -> dB of encoding and decoding them, over the squared error of all frames."""
    back = []
    for first in range(0, len(frames), batch):
        chosen = torch.from_numpy(np.ascontiguousarray(frames[first : first + batch]))
        back.append(tokenizer.decode(tokenizer.encode(chosen)).numpy())
    return psnr(frames, np.concatenate(back))


def codebook_figures(codes: np.ndarray, number: int) -> dict[str, float]:
    """How many of ``number`` codes never occur in ``codes``, and the perplexity of their distribution."""
    share = np.bincount(codes.ravel(), minlength=number) / codes.size
    used = share[share > 0]
    return {"dead_codes": int(number - len(used)), "perplexity": round(float(np.exp(-(used * np.log(used)).sum())), 1)}


@torch.no_grad()
def cross_entropy(llama: Llama, clips: ClipSet, layout: FrameLayout, batch: int = 8) -> np.ndarray:
    """-log p of every code of every clip (clips, frames, cells) in nats, each clip with its prompt."""
    tokens = clips.tokens(layout)
    losses = [code_losses(llama, part, layout) for part in tokens.split(batch)]
    return torch.cat(losses).view(len(tokens), layout.frames, -1).numpy()


@torch.no_grad()
def frame_losses(checkpoint: CarCheckpoint, codes: np.ndarray, prompts: np.ndarray, batch: int = 8) -> np.ndarray:
    """Nats per code of every frame to the float model, (clips, frames) float64: what the deployed model's
    ``toolkit.generation.score.frame_losses`` is to be held against, hence among the codes alone.

    ``codes`` (clips, frames, cells) of up to as many frames as the model knows, ``prompts`` (clips, prompt_length)
    token ids. ValueError for arrays of other shapes.
    """
    layout = checkpoint.config.frame_layout
    fits = codes.ndim == 3 and 0 < codes.shape[1] <= layout.frames and codes.shape[2] == layout.cells
    if not fits or prompts.shape != (len(codes), layout.prompt_length):
        expected = f"(clips, 1 to {layout.frames}, {layout.cells}) and (clips, {layout.prompt_length})"
        raise ValueError(f"codes of shape {codes.shape}, prompts of {prompts.shape}; expected {expected}")
    tokens = ClipSet(codes, prompts).tokens(layout)
    losses = [code_losses(checkpoint.llama, part, layout, codes_alone=True) for part in tokens.split(batch)]
    return torch.cat(losses).double().view(*codes.shape).mean(dim=2).numpy()


def evaluate(
    checkpoint: CarCheckpoint, clips: ClipSet, frames: np.ndarray, baseline: CopyBaseline, shipped: int
) -> dict[str, Any]:
    """Figures on held-out ``clips`` and ``frames`` (n, height, width, 3) uint8; the first ``shipped`` also alone.

    Frame 0 counts on both sides: the backbone predicts it from the prompt, the baseline from how often a code occurs
    at each place.
    """
    layout = checkpoint.config.frame_layout
    ours, theirs = cross_entropy(checkpoint.llama, clips, layout), baseline.losses(clips.codes)
    return {
        "clips": len(clips.codes),
        "cross_entropy": round(float(ours.mean()), 4),
        "baseline_cross_entropy": round(float(theirs.mean()), 4),
        "relative_to_baseline": round(float(ours.mean() / theirs.mean() - 1), 4),
        "cross_entropy_after_frame_0": round(float(ours[:, 1:].mean()), 4),
        "baseline_cross_entropy_after_frame_0": round(float(theirs[:, 1:].mean()), 4),
        "shipped_clips": shipped,
        "shipped_cross_entropies": [round(float(loss), 4) for loss in ours[:shipped].mean((1, 2))],
        "shipped_cross_entropy": round(float(ours[:shipped].mean()), 4),
        "shipped_baseline_cross_entropy": round(float(theirs[:shipped].mean()), 4),
        "reconstruction_psnr_db": round(reconstruction_psnr(checkpoint.tokenizer, frames), 2),
    }
