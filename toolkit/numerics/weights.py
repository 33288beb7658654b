"""The integer model: what quantization produces and what the graph, the reference and the overlay all compute from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np

from ..config import CRITERIA, BackboneConfig, DepthConfig, FrameLayout

__all__ = ["DepthBlockWeights", "DepthWeights", "IntegerModel", "LayerWeights", "LinearWeights"]

KEPT_WEIGHTS = 1 << 22  # of a layer, 16 MiB in binary32


@dataclass(frozen=True)
class LinearWeights:
    """``y[o] = scale[o] * sum_i x[i] * w[i, o] + bias[o]`` with int8 ``w``; no zero point.

    8 bit: ``values`` (in, out) int8 in -127..127, ``multiplier`` None.
    4 bit: ``values`` (in, out) int8 in -7..7 and ``multiplier`` (in / group, out) uint8 in 1..18, one for each
    group of consecutive inputs: ``w[i, o] = values[i, o] * multiplier[i // group, o]`` fits int8 by construction.
    ``scale`` (out,) float32, positive; ``bias`` (out,) float32, or None for a layer without.
    """

    values: np.ndarray
    scale: np.ndarray
    multiplier: np.ndarray | None = None
    bias: np.ndarray | None = None

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
        if self.bias is not None and (self.bias.dtype != np.float32 or self.bias.shape != (outputs,)):
            raise ValueError(f"bias {self.bias.dtype}{self.bias.shape}; expected float32 ({outputs},)")

    @property
    def bit_width(self) -> int:
        return 8 if self.multiplier is None else 4

    @property
    def group_size(self) -> int | None:
        """Inputs that share one multiplier; None for 8 bit."""
        return None if self.multiplier is None else self.values.shape[0] // self.multiplier.shape[0]

    def expanded(self, inputs: slice = slice(None)) -> np.ndarray:
        """The int8 matrix (in, out) that the dot products use, or some of its rows."""
        values = self.values[inputs]
        if self.multiplier is None:
            return values
        groups = np.arange(self.values.shape[0])[inputs] // self.group_size
        return values * self.multiplier.astype(np.int8)[groups]

    def operand(self, inputs: slice) -> np.ndarray:
        """``expanded`` in binary32, where BLAS is. That of a small layer is kept: the next step needs it again."""
        small = self.values.size <= KEPT_WEIGHTS
        return self._kept[inputs] if small else self.expanded(inputs).astype(np.float32)

    @cached_property
    def _kept(self) -> np.ndarray:
        return self.expanded().astype(np.float32)


@dataclass(frozen=True)
class LayerWeights:
    """One decoder layer. Gains carry the norm weight and any equalization folded into it."""

    attention_gain: np.ndarray  # (hidden,) float32
    qkv: LinearWeights  # (hidden, (heads + 2 kv_heads) * head_dim): q, then k, then v
    q_scale: np.ndarray  # (heads,) float32: q = round(q_rotated / q_scale) in -128..127
    k_scale: np.ndarray  # (kv_heads,) float32, k after rotary embedding
    v_scale: np.ndarray  # (kv_heads,) float32
    tas_multiplier: np.ndarray  # (heads,) int32 in 1..127 with q_scale * k_scale == tas_multiplier * tas_scale, or
    tas_scale: float  # in -127..127 and of another scale where heads are weighted in TAS (export.quantize.head_weights)
    output: LinearWeights  # (heads * head_dim, hidden)
    mlp_gain: np.ndarray  # (hidden,) float32
    gate_up: LinearWeights  # (hidden, 2 mlp): gate, then up
    down: LinearWeights  # (mlp, hidden)

    def linears(self) -> Iterator[tuple[str, LinearWeights]]:
        """Its linear layers with their names, in the order a step uses them."""
        return _linears(self)


@dataclass(frozen=True)
class DepthBlockWeights:
    """One block of the depth transformer: LayerNorm with gain and bias, linear layers with a bias, GELU."""

    attention_gain: np.ndarray  # (hidden,) float32
    attention_bias: np.ndarray  # (hidden,) float32
    qkv: LinearWeights  # (hidden, 3 hidden): q, then k, then v
    q_scale: np.ndarray  # (heads,) float32: q as integers is round(q / q_scale) in -128..127; k and v likewise
    k_scale: np.ndarray
    v_scale: np.ndarray
    output: LinearWeights  # (hidden, hidden)
    mlp_gain: np.ndarray  # (hidden,) float32
    mlp_bias: np.ndarray  # (hidden,) float32
    fc1: LinearWeights  # (hidden, mlp)
    fc2: LinearWeights  # (mlp, hidden)

    def linears(self) -> Iterator[tuple[str, LinearWeights]]:
        """Its linear layers with their names, in the order a step uses them."""
        return _linears(self)


@dataclass(frozen=True)
class DepthWeights:
    """A quantized depth transformer, with the codebooks and the projector that feed codes to it and to the backbone."""

    config: DepthConfig
    codebook: np.ndarray  # (codes_per_position or, shared, 1; codes; code_dim) float16
    projector: tuple[LinearWeights, ...]  # code_dim -> backbone hidden (-> backbone hidden)
    in_mlp_1: LinearWeights  # (code_dim, hidden), of the codes before
    in_mlp_2: LinearWeights  # (backbone hidden, hidden), of the hidden state
    pos_emb: np.ndarray  # (codes_per_position, hidden) float32
    blocks: tuple[DepthBlockWeights, ...]
    classifier_gain: np.ndarray  # (hidden,) float32
    classifier_bias: np.ndarray  # (hidden,) float32
    classifier: LinearWeights  # (hidden, codes), the same for every code of a position

    def linears(self) -> Iterator[tuple[str, LinearWeights]]:
        """Its linear layers with their names in a bundle, those of the projector first."""
        yield from ((f"projector.{index}", linear) for index, linear in enumerate(self.projector))
        yield from (("depth.in_mlp_1", self.in_mlp_1), ("depth.in_mlp_2", self.in_mlp_2))
        for index, block in enumerate(self.blocks):
            yield from ((f"depth.blocks.{index}.{name}", linear) for name, linear in block.linears())
        yield "depth.classifier", self.classifier


def _linears(weights: LayerWeights | DepthBlockWeights) -> Iterator[tuple[str, LinearWeights]]:
    for field in fields(weights):
        value = getattr(weights, field.name)
        if isinstance(value, LinearWeights):
            yield field.name, value


@dataclass(frozen=True)
class IntegerModel:
    """A quantized backbone, with the head or the depth transformer that predicts its codes.

    ``tas_query`` is ``post_rope`` (the formula) or ``pre_rope`` (the authors' release); ``tas_heads`` one of
    ``TAS_HEADS``, ``mean`` in the paper; ``criterion`` what replay is decided by, one of ``CRITERIA``. ValueError for
    another one, or unless there is either a head or a depth transformer.
    """

    config: BackboneConfig
    layout: FrameLayout
    embedding: np.ndarray  # (vocab, hidden) float16
    layers: Sequence[LayerWeights]  # in memory, or read from a file when they are asked for
    final_gain: np.ndarray  # (hidden,) float32
    head: LinearWeights | None  # (hidden, codes): the codes only, text tokens are never generated
    tas_query: str = "post_rope"
    depth: DepthWeights | None = None
    criterion: str = "tas"
    tas_heads: str = "mean"

    def __post_init__(self) -> None:
        if (self.head is None) == (self.depth is None):
            found = "neither" if self.head is None else "both"
            raise ValueError(f"{found} of head and depth transformer; expected one of them")
        if self.criterion not in CRITERIA:
            raise ValueError(f"criterion {self.criterion!r}; expected one of {', '.join(CRITERIA)}")

    def linears(self) -> Iterator[tuple[str, LinearWeights]]:
        """Every linear layer with its name, in the order a step uses them."""
        for index, layer in enumerate(self.layers):
            yield from ((f"layers.{index}.{name}", linear) for name, linear in layer.linears())
        if self.depth is None:
            yield "head", self.head
        else:
            yield from self.depth.linears()
