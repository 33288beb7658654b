"""Float decoder in, integer model out: a quantization of a model that is in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from ...toolkit.config import FrameLayout
from ...toolkit.numerics.weights import IntegerModel
from ..llama import Llama
from ..source import LlamaSource
from .checks import check_before_quantizing
from .layers import LayerQuantizer
from .network import QuantLlama
from .recipes import Recipe
from .report import QuantizationReport, packed_bytes

__all__ = ["Progress", "Quantized", "quantize", "quantize_with_report"]

Progress = Callable[[str, int, int], None]
"""Called as (name of the step, done, of how many)."""


@dataclass(frozen=True)
class Quantized:
    """``model`` is deployed; ``network`` is the same in Brevitas, for cross-entropy; ``report`` tells what was met."""

    model: IntegerModel
    network: QuantLlama
    report: QuantizationReport


def quantize(
    llama: Llama,
    layout: FrameLayout,
    recipe: Recipe,
    calibration_tokens: torch.Tensor,
    *,
    tas_query: str = "post_rope",
    progress: Progress | None = None,
) -> IntegerModel:
    """The integer model of ``llama``; see ``quantize_with_report``."""
    return quantize_with_report(llama, layout, recipe, calibration_tokens, tas_query=tas_query, progress=progress).model


def quantize_with_report(
    llama: Llama,
    layout: FrameLayout,
    recipe: Recipe,
    calibration_tokens: torch.Tensor,
    *,
    tas_query: str = "post_rope",
    progress: Progress | None = None,
) -> Quantized:
    """Equalize, calibrate and round layer by layer; ``llama`` is left as it was.

    ``calibration_tokens`` (clips, positions) int64, prompts and codes. Before any work: CheckpointError for weights
    that are not finite, UsageError for a group size that does not divide or tokens that do not fit; ValueError for
    an unknown ``tas_query``.
    """
    if tas_query not in ("post_rope", "pre_rope"):
        raise ValueError(f"tas_query {tas_query!r}; expected post_rope or pre_rope")
    source, advance = LlamaSource(llama), progress or (lambda *_: None)
    check_before_quantizing(source, layout, recipe, calibration_tokens)
    count = source.config.layers
    with TemporaryDirectory() as folder:
        quantizer = LayerQuantizer(source, layout, recipe, calibration_tokens, None, Path(folder), tas_query)
        quantizer.begin()
        layers = []
        for index in range(count):
            layers.append(quantizer.layer(index))
            quantizer.drop(index)
            advance("quantization", index + 1, count)
        head = quantizer.head()
    embedding = source.embedding()
    model = IntegerModel(
        config=source.config,
        layout=layout,
        embedding=embedding.numpy().astype(np.float16),
        layers=tuple(layer.weights for layer in layers),
        final_gain=head.final_gain.numpy().copy(),
        head=head.weights,
        tas_query=tas_query,
    )
    network = QuantLlama(source.config, layout, embedding, [layer.module for layer in layers], head.module)
    notes = [note for part in (*layers, head) for note in part.notes]
    sizes = {name: packed_bytes(linear) for name, linear in model.linears()}
    return Quantized(model, network, QuantizationReport(recipe.name, tuple(notes), sizes))
