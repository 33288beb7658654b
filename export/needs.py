"""What an export will take, told before it starts: exact for the disk, estimated for memory."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ..toolkit.backends.golden import golden_length
from ..toolkit.backends.golden_nodes import nodes_bytes
from ..toolkit.bundle.tensors import planned_tensors
from ..toolkit.config import BackboneConfig, DepthConfig, FrameLayout
from .quantize.activations import BATCH_POSITIONS
from .quantize.recipes import Recipe

__all__ = ["Needs", "needs_of"]

MIB = 1 << 20
BASE = 700 * MIB  # the libraries
SMALL_FILES = 64 * MIB  # graph, decoder
STREAMS = {"nearest": 1, "gptq": 2}  # hidden states of the calibration clips: float, and after quantized layers


@dataclass(frozen=True)
class Needs:
    """Bytes. ``memory`` is an estimate of the largest resident size."""

    disk: int
    memory: int


def needs_of(
    config: BackboneConfig,
    layout: FrameLayout,
    recipe: Recipe,
    calibration: torch.Tensor,
    held_out: torch.Tensor | None,
    packed: int,
    depth: DepthConfig | None = None,
) -> Needs:
    """``packed``: bytes of program and weights for an overlay."""
    weights = sum(spec.bytes for spec in planned_tensors(config, layout, recipe.group_size, depth).values())
    used = calibration[: recipe.calibration_clips]
    positions = STREAMS[recipe.method] * _positions(used) + (0 if held_out is None else 2 * _positions(held_out))
    spilled = 2 * 4 * config.hidden * positions
    largest = config.hidden * max(config.mlp, config.heads * config.head_dim)
    hessians = config.mlp**2 + 6 * config.hidden**2 if recipe.method == "gptq" else 0
    batch = max(BATCH_POSITIONS, used.shape[1]) * (3 * config.mlp + 8 * config.hidden)
    table = config.vocab * config.hidden
    layer = 5 * config.layer_weights + 4 * 8 * largest + 4 * batch + 8 * hessians
    whole = 7 * depth.weights(layout.codes, config.hidden) if depth else 0  # float32, int8, and one layer at work
    memory = BASE + max(layer, 8 * table, whole)
    golden = 4 * golden_length(config, layout)[1] * layout.codes * (depth.codes_per_position if depth else 1)  # logits
    golden += nodes_bytes(config, layout, depth)
    return Needs(weights + packed + spilled + golden + SMALL_FILES, memory)


def _positions(clips: torch.Tensor) -> int:
    return clips.shape[0] * clips.shape[1]
