"""What must hold before any work is done: finite weights, groups that divide, tokens that fit."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from ...toolkit.config import BackboneConfig, FrameLayout
from ...toolkit.errors import CheckpointError, UsageError
from ..llama import Llama
from .recipes import Recipe

__all__ = ["check_before_quantizing"]

FLOAT16_MAX = 65504.0


def check_before_quantizing(llama: Llama, layout: FrameLayout, recipe: Recipe, tokens: torch.Tensor) -> None:
    """CheckpointError naming the tensor and index of a weight that is not finite; UsageError for the rest."""
    check_finite(llama)
    check_groups(llama.config, recipe)
    check_codes(llama.config, layout)
    check_tokens(llama, tokens)


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
    embedding = llama.model.embed_tokens.weight.detach()
    if embedding.abs().max() > FLOAT16_MAX:
        index = tuple((embedding.abs() > FLOAT16_MAX).nonzero()[0].tolist())
        raise CheckpointError(
            "model.embed_tokens.weight",
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


def check_tokens(llama: Llama, tokens: torch.Tensor) -> None:
    shape, most = tuple(tokens.shape), llama.cos.shape[0]
    if tokens.dim() != 2 or not tokens.numel() or shape[1] > most:
        raise UsageError(
            "calibration tokens", f"shape {shape}", f"(clips, positions) with 1..{most} positions", "Give whole clips."
        )
    low, high = int(tokens.min()), int(tokens.max())
    if low < 0 or high >= llama.config.vocab:
        raise UsageError(
            "calibration tokens",
            f"values {low}..{high}",
            f"0..{llama.config.vocab - 1}",
            "Use clips encoded for this checkpoint.",
        )
