"""What quantization met that the numbers alone do not show."""

from __future__ import annotations

from dataclasses import dataclass

from ...toolkit.numerics.weights import LinearWeights

__all__ = ["QuantizationReport", "packed_bytes", "zero_outputs"]


@dataclass(frozen=True)
class QuantizationReport:
    """``notes``: a sentence for each scale floored or input found silent; ``linear_bytes``: packed bytes a layer."""

    recipe: str
    notes: tuple[str, ...]
    linear_bytes: dict[str, int]

    @property
    def total_bytes(self) -> int:
        return sum(self.linear_bytes.values())


def packed_bytes(weights: LinearWeights) -> int:
    """Bytes of a linear layer in a bundle."""
    multiplier = 0 if weights.multiplier is None else weights.multiplier.nbytes
    return weights.values.size * weights.bit_width // 8 + weights.scale.nbytes + multiplier


def zero_outputs(name: str, weights: LinearWeights) -> list[str]:
    """A note if output channels of a linear layer are all zero."""
    count = int((~weights.values.any(axis=0)).sum())
    if not count:
        return []
    return [f"{name}: {count} of {weights.scale.size} output channels are all zero, their scale is the floor"]
