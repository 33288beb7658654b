"""Held-out cross-entropy, the quality figure of a recipe."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from ...toolkit.config import SAMPLED, FrameLayout
from ..llama import Llama
from .network import QuantLlama

__all__ = ["cross_entropy", "predicted_codes", "summed_nats"]


@torch.no_grad()
def cross_entropy(model: Llama | QuantLlama, tokens: torch.Tensor, layout: FrameLayout, *, batch: int = 2) -> float:
    """Nats per code of the codes of ``tokens`` (clips, positions) int64, each predicted from all before it, separators
    included; these do not count.

    Probabilities are over the codes alone, for a float model too: text tokens are never generated. ValueError when
    the clips hold no code.
    """
    total = 0.0
    for clips in tokens.split(batch):
        logits = model(clips[:, :-1])
        if isinstance(model, Llama):
            logits = logits[..., layout.code_offset : layout.code_offset + layout.codes]
        total += summed_nats(logits, clips, layout)
    return total / predicted_codes(tokens, layout)


def summed_nats(logits: torch.Tensor, tokens: torch.Tensor, layout: FrameLayout) -> float:
    """Of every code of tokens (clips, positions), given logits (clips, positions or one less, codes) of what follows
    each position."""
    start, own = layout.prompt_length, _code_places(tokens, layout)
    predicted = logits[:, start - 1 : tokens.shape[1] - 1][:, own]
    target = tokens[:, start:][:, own] - layout.code_offset
    return F.cross_entropy(predicted.flatten(0, 1), target.flatten(), reduction="sum").double().item()


def predicted_codes(tokens: torch.Tensor, layout: FrameLayout) -> int:
    """How many there are in tokens (clips, positions). ValueError if none."""
    start = layout.prompt_length
    if tokens.shape[0] < 1 or tokens.shape[1] <= start:
        raise ValueError(f"tokens {tuple(tokens.shape)}; expected at least one clip longer than {start} prompt tokens")
    own = _code_places(tokens, layout)
    if not own.any():
        raise ValueError(f"tokens {tuple(tokens.shape)} hold separators alone; expected codes")
    return tokens.shape[0] * int(own.sum())


def _code_places(tokens: torch.Tensor, layout: FrameLayout) -> torch.Tensor:
    """(positions behind the prompt,) bool: those that no separator takes."""
    start = layout.prompt_length
    return torch.from_numpy(layout.forced(start, tokens.shape[1] - start) == SAMPLED)
