"""Float decoder in, integer model out: the order of the steps of a quantization."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass

import torch

from ...toolkit.config import FrameLayout
from ...toolkit.numerics.weights import IntegerModel
from ..llama import Llama
from .calibrate import calibrate_heads
from .checks import check_before_quantizing
from .equalize import ChannelPeaks, equalize
from .extract import extract
from .gptq import run_gptq
from .network import QuantLlama
from .recipes import Recipe
from .report import QuantizationReport, report_on

__all__ = ["Progress", "Quantized", "quantize", "quantize_with_report"]

Progress = Callable[[str, int, int], None]
"""Called as (name of the step, batches done, of how many)."""

BATCH_POSITIONS = 4096  # of calibration tokens that are in flight together


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
    """Equalize a copy, calibrate the heads, choose the integers, read them out. ``llama`` is left as it was.

    ``calibration_tokens`` (clips, positions) int64, prompts and codes. No activation outlives its batch: what is kept
    are running maxima, and for GPTQ one running (in, in) matrix a layer. Before any work: CheckpointError for weights
    that are not finite, UsageError for a group size that does not divide or tokens that do not fit; ValueError for
    an unknown ``tas_query``.
    """
    if tas_query not in ("post_rope", "pre_rope"):
        raise ValueError(f"tas_query {tas_query!r}; expected post_rope or pre_rope")
    check_before_quantizing(llama, layout, recipe, calibration_tokens)
    clips = _Batches(calibration_tokens[: recipe.calibration_clips], progress or (lambda *_: None))
    copy = deepcopy(llama).eval().requires_grad_(False)
    if recipe.equalization.enabled:
        peaks = ChannelPeaks(copy).observe(copy, clips.of("equalization"))
        equalize(copy, peaks, recipe.equalization)
    network = QuantLlama(copy, layout, recipe, observe_unrotated=tas_query == "pre_rope")
    scales = calibrate_heads(network, clips.of("calibration"))
    notes = run_gptq(network, clips.of) if recipe.method == "gptq" else []
    model = extract(network, scales, tas_query)
    return Quantized(model, network, report_on(network, model, notes))


@dataclass(frozen=True)
class _Batches:
    """Calibration clips, a few at a time, reporting progress as they are used."""

    tokens: torch.Tensor
    progress: Progress

    def of(self, step: str) -> Iterator[torch.Tensor]:
        batches = self.tokens.split(max(1, BATCH_POSITIONS // self.tokens.shape[1]))
        for done, batch in enumerate(batches):
            yield batch
            self.progress(step, done + 1, len(batches))
