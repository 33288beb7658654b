"""The integer model: what quantization produces and what the graph, the reference and the overlay all compute from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np

from ..config import BackboneConfig, FrameLayout

__all__ = ["IntegerModel", "LayerWeights", "LinearWeights"]


@dataclass(frozen=True)
class LinearWeights:
    """``y[o] = scale[o] * sum_i x[i] * w[i, o]`` with int8 ``w``; no bias, no zero point.

    8 bit: ``values`` (in, out) int8 in -127..127, ``multiplier`` None.
    4 bit: ``values`` (in, out) int8 in -7..7 and ``multiplier`` (in / group, out) uint8 in 1..18, one for each
    group of consecutive inputs: ``w[i, o] = values[i, o] * multiplier[i // group, o]`` fits int8 by construction.
    ``scale`` (out,) float32, positive.
    """

    values: np.ndarray
    scale: np.ndarray
    multiplier: np.ndarray | None = None

    def __post_init__(self) -> None:
        inputs, outputs = self.values.shape
        if self.values.dtype != np.int8 or self.scale.dtype != np.float32 or self.scale.shape != (outputs,):
            raise ValueError(
                f"values {self.values.dtype}{self.values.shape}, scale {self.scale.dtype}{self.scale.shape}; "
                f"expected int8 (in, out) and float32 (out,)"
            )
        if self.multiplier is not None and (
            self.multiplier.dtype != np.uint8
            or self.multiplier.shape[1:] != (outputs,)
            or inputs % self.multiplier.shape[0]
        ):
            raise ValueError(
                f"multiplier {self.multiplier.dtype}{self.multiplier.shape}; expected uint8 (in / group, {outputs}) "
                f"with a group that divides {inputs}"
            )

    @property
    def bit_width(self) -> int:
        return 8 if self.multiplier is None else 4

    @property
    def group_size(self) -> int | None:
        """Inputs that share one multiplier; None for 8 bit."""
        return None if self.multiplier is None else self.values.shape[0] // self.multiplier.shape[0]

    def expanded(self) -> np.ndarray:
        """The int8 matrix (in, out) that the dot products use."""
        if self.multiplier is None:
            return self.values
        return (self.values * np.repeat(self.multiplier.astype(np.int8), self.group_size, axis=0)).astype(np.int8)

    @cached_property
    def operand(self) -> np.ndarray:
        """``expanded`` in the narrowest float whose sums of products with int8 are exact integers in any order.

        binary32 up to 127 * 127 * in < 2^24, that is 1040 inputs, else binary64. Kept: a step needs it again.
        """
        exact_in_float32 = self.values.shape[0] * 127 * 127 < 1 << 24
        return self.expanded().astype(np.float32 if exact_in_float32 else np.float64)


@dataclass(frozen=True)
class LayerWeights:
    """One decoder layer. Gains carry the norm weight and any equalization folded into it."""

    attention_gain: np.ndarray  # (hidden,) float32
    qkv: LinearWeights  # (hidden, (heads + 2 kv_heads) * head_dim): q, then k, then v
    q_scale: np.ndarray  # (heads,) float32: q = round(q_rotated / q_scale) in -128..127
    k_scale: np.ndarray  # (kv_heads,) float32, k after rotary embedding
    v_scale: np.ndarray  # (kv_heads,) float32
    tas_multiplier: np.ndarray  # (heads,) int32 in 1..127 with q_scale * k_scale == tas_multiplier * tas_scale
    tas_scale: float
    output: LinearWeights  # (heads * head_dim, hidden)
    mlp_gain: np.ndarray  # (hidden,) float32
    gate_up: LinearWeights  # (hidden, 2 mlp): gate, then up
    down: LinearWeights  # (mlp, hidden)

    def linears(self) -> Iterator[tuple[str, LinearWeights]]:
        """Its linear layers with their names, in the order a step uses them."""
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, LinearWeights):
                yield field.name, value


@dataclass(frozen=True)
class IntegerModel:
    """A quantized backbone. ``tas_query`` is ``post_rope`` (the formula) or ``pre_rope`` (the authors' release)."""

    config: BackboneConfig
    layout: FrameLayout
    embedding: np.ndarray  # (vocab, hidden) float16
    layers: Sequence[LayerWeights]  # in memory, or read from a file when they are asked for
    final_gain: np.ndarray  # (hidden,) float32
    head: LinearWeights  # (hidden, codes): the codes only, text tokens are never generated
    tas_query: str = "post_rope"

    def linears(self) -> Iterator[tuple[str, LinearWeights]]:
        """Every linear layer with its name, in the order a step uses them."""
        for index, layer in enumerate(self.layers):
            yield from ((f"layers.{index}.{name}", linear) for name, linear in layer.linears())
        yield "head", self.head
