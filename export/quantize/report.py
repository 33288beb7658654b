"""What quantization met that the numbers alone do not show."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...toolkit.numerics.weights import IntegerModel
from .calibrate import quantizer_scaling
from .network import QuantLlama

__all__ = ["QuantizationReport", "report_on"]


@dataclass(frozen=True)
class QuantizationReport:
    """``notes``: a sentence for each scale floored or input found silent; ``linear_bytes``: packed bytes a layer."""

    recipe: str
    notes: tuple[str, ...]
    linear_bytes: dict[str, int]

    @property
    def total_bytes(self) -> int:
        return sum(self.linear_bytes.values())


def report_on(network: QuantLlama, model: IntegerModel, notes: list[str]) -> QuantizationReport:
    """Add to ``notes`` of earlier steps what the finished model shows."""
    notes = [*notes, *_zero_outputs(model), *_silent_heads(network)]
    sizes = {
        name: weights.values.size * weights.bit_width // 8
        + weights.scale.nbytes
        + (0 if weights.multiplier is None else weights.multiplier.nbytes)
        for name, weights in model.linears()
    }
    return QuantizationReport(network.recipe.name, tuple(notes), sizes)


def _zero_outputs(model: IntegerModel) -> list[str]:
    counts = ((name, int((~weights.values.any(axis=0)).sum()), weights.scale.size) for name, weights in model.linears())
    return [
        f"{name}: {count} of {outputs} output channels are all zero, their scale is the floor"
        for name, count, outputs in counts
        if count
    ]


def _silent_heads(network: QuantLlama) -> list[str]:
    notes = []
    for index, layer in enumerate(network.layers):
        attention = layer.self_attn
        for name in ("q", "k", "v"):
            peak = quantizer_scaling(getattr(attention, f"{name}_quant")).peak.flatten().numpy()
            if not np.all(peak > 0):
                heads = ", ".join(map(str, np.flatnonzero(peak == 0)))
                notes.append(f"layers.{index}: {name} of heads {heads} was zero in calibration, its scale is 1/127")
    return notes
