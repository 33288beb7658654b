"""What must hold before any work is done: finite weights, groups that divide, tokens that fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from ...toolkit.config import BackboneConfig, FrameLayout, check_separators
from ...toolkit.errors import CheckpointError, UsageError
from ...toolkit.numerics.depth import TEXT
from ..llama import Llama
from ..source import BackboneSource
from .recipes import Recipe

__all__ = ["check_before_quantizing", "check_embedding", "check_finite"]

FLOAT16_MAX = 65504.0


def check_before_quantizing(
    source: BackboneSource,
    layout: FrameLayout,
    recipe: Recipe,
    tokens: torch.Tensor,
    advance: Callable[[int, int], None] = lambda done, total: None,
) -> None:
    """CheckpointError naming the tensor and index of a weight that is not finite; UsageError for the rest.

    What takes no time comes first. ``advance(done, total)``: weights looked through.
    """
    check_groups(source.config, recipe)
    if tokens.dim() == 2:  # else codes are no entries of the vocabulary
        check_codes(source.config, layout)
    check_tokens(source.config, layout, tokens)
    source.check(advance)


def check_finite(llama: Llama) -> None:
    for name, value in llama.named_parameters():
        bad = ~torch.isfinite(value.detach())
        if bad.any():
            index = tuple(bad.nonzero()[0].tolist())
            raise CheckpointError(
                name,
                f"{value[index].item()} at index {index} ({int(bad.sum())} such values)",
                "finite weights",
                "Train or convert the checkpoint again.",
            )
    check_embedding("model.embed_tokens.weight", llama.model.embed_tokens.weight.detach())


def check_embedding(name: str | Path, embedding: torch.Tensor) -> None:
    """CheckpointError for a value that a bundle, which keeps the embedding in float16, cannot hold."""
    beyond = (embedding.abs() > FLOAT16_MAX).nonzero()
    if len(beyond):
        index = tuple(beyond[0].tolist())
        raise CheckpointError(
            name,
            f"{embedding[index].item()} at index {index}",
            f"magnitudes up to {FLOAT16_MAX:.0f}, the range of float16",
            "Rescale the embedding.",
        )


def check_groups(config: BackboneConfig, recipe: Recipe) -> None:
    """All offending layers in one message, before the first of them is touched."""
    if recipe.group_size is None:
        return
    offending = [f"{name} ({inputs})" for name, inputs in _inputs(config) if inputs % recipe.group_size]
    if offending:
        raise UsageError(
            f"recipe {recipe.name}",
            f"group size {recipe.group_size} does not divide the inputs of {', '.join(offending)}",
            "a group size that divides the inputs of every layer",
            "Choose a recipe with another group size or with 8-bit weights.",
        )


def _inputs(config: BackboneConfig) -> Iterator[tuple[str, int]]:
    for layer in range(config.layers):
        yield f"layers.{layer}.qkv", config.hidden
        yield f"layers.{layer}.output", config.heads * config.head_dim
        yield f"layers.{layer}.gate_up", config.hidden
        yield f"layers.{layer}.down", config.mlp


def check_codes(config: BackboneConfig, layout: FrameLayout) -> None:
    if layout.code_offset + layout.codes > config.vocab:
        raise CheckpointError(
            "frame layout",
            f"codes {layout.code_offset}..{layout.code_offset + layout.codes - 1}",
            f"entries below the vocabulary's {config.vocab}",
            "Correct code_offset or codes in the configuration.",
        )
    if wrong := check_separators(layout, config.vocab):
        expected = f"entries below the vocabulary's {config.vocab}"
        raise CheckpointError("frame layout", wrong, expected, "Correct before_frame, after_row or after_frame.")


def check_tokens(config: BackboneConfig, layout: FrameLayout, tokens: torch.Tensor) -> None:
    shape, most = tuple(tokens.shape), layout.trained_positions
    if tokens.dim() not in (2, 3) or not tokens.numel() or shape[1] > most:
        raise UsageError(
            "calibration tokens", f"shape {shape}", f"(clips, positions) with 1..{most} positions", "Give whole clips."
        )
    words = tokens if tokens.dim() == 2 else tokens[..., 0][tokens[..., 0] != TEXT]
    low, high = int(words.min()), int(words.max())
    if low < 0 or high >= config.vocab:
        raise UsageError(
            "calibration tokens",
            f"values {low}..{high}",
            f"0..{config.vocab - 1}",
            "Use clips encoded for this checkpoint.",
        )
