"""The depth transformer from float to integers: rounded to nearest, heads calibrated on what the backbone gives.

The linear layers of its blocks take the recipe's bits; projector, inputs and classifier, which are narrow or decide
the code, always 8. Neither GPTQ nor equalization is applied: both are the backbone's.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import nn

from ...toolkit.config import DepthConfig
from ...toolkit.errors import CheckpointError, UsageError
from ...toolkit.numerics.weights import DepthBlockWeights, DepthWeights, LinearWeights
from ..depth import CodeEmbedding, DepthBlock, DepthTransformer
from .checks import check_embedding
from .extract import linear_weights
from .head_scales import query_key_scales, value_scales
from .network import UnfilledLinear
from .recipes import Recipe
from .report import zero_outputs
from .weight_quantizers import Int8WeightPerOutputChannel, weight_quantizer

__all__ = ["QuantizedDepth", "check_depth", "check_depth_groups", "quantize_depth"]

BATCH = 512  # positions in flight together


@dataclass(frozen=True)
class QuantizedDepth:
    """``notes``: a sentence for each scale floored and head found silent."""

    weights: DepthWeights
    notes: list[str]


def check_depth_groups(config: DepthConfig, recipe: Recipe) -> None:
    """UsageError for a group size that does not divide; needs no weights."""
    widths = {"hidden": config.hidden, "mlp": config.mlp}
    size = recipe.group_size or 1
    offending = [f"{name} ({width})" for name, width in widths.items() if width % size]
    if offending:
        raise UsageError(
            f"recipe {recipe.name}",
            f"group size {recipe.group_size} does not divide the depth transformer's {', '.join(offending)}",
            "a group size that divides the inputs of every layer",
            "Choose a recipe with another group size or with 8-bit weights.",
        )


def check_depth(depth: DepthTransformer, embedding: CodeEmbedding, recipe: Recipe) -> None:
    """Before any work: UsageError for a group size that does not divide, CheckpointError for weights that are not
    finite or, in a codebook, beyond float16."""
    check_depth_groups(depth.config, recipe)
    for name, value in (*depth.named_parameters(prefix="depth"), *embedding.named_parameters(prefix="codes")):
        bad = ~torch.isfinite(value.detach())
        if bad.any():
            index = tuple(bad.nonzero()[0].tolist())
            found = f"{value[index].item()} at index {index} ({int(bad.sum())} such values)"
            raise CheckpointError(name, found, "finite weights", "Train or convert the checkpoint again.")
    for index, book in enumerate(embedding.codebooks):
        check_embedding(f"codes.codebooks.{index}.weight", book.weight.detach())


@torch.no_grad()
def quantize_depth(
    depth: DepthTransformer,
    embedding: CodeEmbedding,
    recipe: Recipe,
    hidden: torch.Tensor,
    codes: torch.Tensor,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> QuantizedDepth:
    """The integers of ``depth``, whose blocks are let go one after the other, and of ``embedding``.

    hidden (n, backbone hidden): normed hidden states of calibration clips; codes (n, D) int64: what was predicted from
    them. ``progress(done, total)`` in positions. Raises as ``check_depth``; ValueError for shapes that do not fit.
    """
    config = depth.config
    if not len(hidden) or hidden.shape[:1] != codes.shape[:1] or codes.shape[1:] != (config.codes_per_position,):
        expected = f"(n, hidden) and (n, {config.codes_per_position}), n > 0"
        raise ValueError(f"hidden {tuple(hidden.shape)}, codes {tuple(codes.shape)}; expected {expected}")
    check_depth(depth, embedding, recipe)
    with _observing(depth) as peaks:
        for done in range(0, len(hidden), BATCH):
            part = slice(done, done + BATCH)
            depth(hidden[part], embedding.cumulative(codes[part]))
            progress(min(done + BATCH, len(hidden)), len(hidden))
    classifier, blocks = depth.classifier_mlp, list(depth.head_transformer.blocks)
    depth.head_transformer.blocks = None
    weights = DepthWeights(
        config=config,
        codebook=np.stack([_array(book.weight.half()) for book in embedding.codebooks]),
        projector=tuple(_eight_bits(layer) for layer in embedding.projector if isinstance(layer, nn.Linear)),
        in_mlp_1=_eight_bits(depth.in_mlp_1),
        in_mlp_2=_eight_bits(depth.in_mlp_2),
        pos_emb=_array(depth.pos_emb_d[0]),
        blocks=tuple(_block_let_go(blocks, found, recipe) for found in peaks),
        classifier_gain=_array(classifier.layer_norm.weight),
        classifier_bias=_array(classifier.layer_norm.bias),
        classifier=_eight_bits(classifier.linear),
    )
    notes = [note for name, linear in weights.linears() for note in zero_outputs(name, linear)]
    notes += [note for index, found in enumerate(peaks) for note in _silent(index, found)]
    if recipe.method != "nearest":
        notes.append(f"depth: rounded to nearest, {recipe.method} is for the backbone")
    return QuantizedDepth(weights, notes)


Peaks = dict[str, torch.Tensor]
"""Largest |x| of each head (heads,), by ``query``, ``key`` and ``value``."""


@contextmanager
def _observing(depth: DepthTransformer) -> Iterator[list[Peaks]]:
    """Peaks of every block over all that runs inside."""
    heads, hooks = depth.config.heads, []
    peaks = [{name: torch.zeros(heads) for name in ("query", "key", "value")} for _ in depth.head_transformer.blocks]

    def observer(found: Peaks, name: str) -> Callable[..., None]:
        def observe(module: nn.Module, inputs: tuple, output: torch.Tensor) -> None:
            seen = output.unflatten(-1, (heads, -1)).abs().amax(dim=(0, 1, 3))
            found[name] = torch.maximum(found[name], seen)

        return observe

    for block, found in zip(depth.head_transformer.blocks, peaks, strict=True):
        hooks += [getattr(block.attn, name).register_forward_hook(observer(found, name)) for name in found]
    try:
        yield peaks
    finally:
        for hook in hooks:
            hook.remove()


def _block_let_go(blocks: list[DepthBlock], peaks: Peaks, recipe: Recipe) -> DepthBlockWeights:
    """Of the first of ``blocks``, which is not held any longer."""
    weights = _block(blocks.pop(0), peaks, recipe)
    gc.collect()  # its modules refer to each other
    return weights


def _block(block: DepthBlock, peaks: Peaks, recipe: Recipe) -> DepthBlockWeights:
    attention, quant = block.attn, weight_quantizer(recipe)
    return DepthBlockWeights(
        attention_gain=_array(block.ln1.weight),
        attention_bias=_array(block.ln1.bias),
        qkv=_linear(quant, attention.query, attention.key, attention.value),
        q_scale=query_key_scales(peaks["query"].numpy()),
        k_scale=query_key_scales(peaks["key"].numpy()),
        v_scale=value_scales(peaks["value"].numpy()),
        output=_linear(quant, attention.proj),
        mlp_gain=_array(block.ln2.weight),
        mlp_bias=_array(block.ln2.bias),
        fc1=_linear(quant, block.mlp[0]),
        fc2=_linear(quant, block.mlp[2]),
    )


def _eight_bits(layer: nn.Linear) -> LinearWeights:
    return _linear(Int8WeightPerOutputChannel, layer)


def _linear(weight_quant: type, *layers: nn.Linear) -> LinearWeights:
    """The layers joined along their outputs, each output channel with its own scale; biases stay float32."""
    quantized = []
    for layer in layers:
        quant = UnfilledLinear(layer.in_features, layer.out_features, weight_quant)
        quant.weight.data = layer.weight.data.float()
        quantized.append(quant.eval())
    bias = np.concatenate([_array(layer.bias) for layer in layers])
    return replace(linear_weights(*quantized), bias=bias)


def _array(x: torch.Tensor) -> np.ndarray:
    x = x.detach()
    return (x if x.dtype == torch.float16 else x.float()).numpy().copy()


def _silent(index: int, peaks: Peaks) -> list[str]:
    notes = []
    for name, peak in peaks.items():
        if heads := (peak == 0).nonzero().flatten().tolist():
            which = ", ".join(map(str, heads))
            notes.append(f"depth.blocks.{index}: {name} of heads {which} was zero in calibration, its scale is 1/127")
    return notes
