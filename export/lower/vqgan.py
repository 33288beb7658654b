"""The decoder of a VQGAN as an ONNX model: one frame's codes -> RGB."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from ...toolkit.numerics.bilinear import corners
from ...toolkit.numerics.byte_conv import ByteConv
from ...toolkit.numerics.group_norm import GroupNorm
from ...toolkit.numerics.map_attention import steps_of_score
from ...toolkit.numerics.tables import ATTENTION_BITS, exp2_table, sigmoid_table
from ...toolkit.numerics.vqgan import VqganDecoder, VqganStage
from .body import DOMAIN, IR_VERSION, OPSET, Body, Library
from .byte_conv import double_bytes
from .linear import ZERO_POINT
from .vqgan_functions import define, outputs_of

__all__ = ["lower_vqgan"]

D = ir.DataType


def lower_vqgan(decoder: VqganDecoder) -> ir.Model:
    """Input codes int64 (1, height, width, depth), without the last axis if depth is 1; output frames uint8
    (1, height', width', 3).

    The frame axis is 1: scales are a frame's own, and a frame of 256 x 256 pixels alone takes hundreds of megabytes.
    Weights are uint8 initializers, which nothing widens when a session loads them.
    """
    graph = _Graph()
    depth = [decoder.depth] if decoder.depth > 1 else []
    codes = ir.Value(name="codes", shape=ir.Shape([1, *decoder.code_shape, *depth]), type=ir.TensorType(D.INT64))
    x = _latent(graph, decoder, codes)
    for index, stage in enumerate(decoder.stages):
        x = _STAGES[stage.op](graph, f"stages.{index}", stage, x)
    pixels = graph.op("Clip", graph.op("Round", x), np.float32(0), np.float32(255))
    frames = graph.op.cast(graph.op("Transpose", pixels, perm=[0, 2, 3, 1]), D.UINT8)
    frames.name, frames.type = "frames", ir.TensorType(D.UINT8)
    frames.shape = ir.Shape([1, *decoder.picture_shape, 3])
    return graph.model(codes, frames)


class _Graph:
    """The graph under construction, with its named constants and the functions it calls."""

    def __init__(self) -> None:
        self.op, self.library = Body(), Library()
        self._constants: dict[str, ir.Value] = {}

    def constant(self, name: str, array: np.ndarray) -> ir.Value:
        """An initializer; the same one for the same name."""
        if name not in self._constants:
            tensor = ir.tensor(np.ascontiguousarray(array), name=name)
            self._constants[name] = ir.Value(
                name=name, shape=tensor.shape, type=ir.TensorType(tensor.dtype), const_value=tensor
            )
        return self._constants[name]

    def call(self, name: str, function: str, *inputs: ir.Value, kernel: int | None = None) -> Any:
        called = define(self.library, function, kernel)
        return self.op.call(called, *inputs, outputs=outputs_of(function), name=f"{name}.{called}")

    def model(self, codes: ir.Value, frames: ir.Value) -> ir.Model:
        graph = ir.Graph(
            [codes],
            [frames],
            nodes=self.op.tape.nodes,
            initializers=list(self._constants.values()),
            opset_imports={"": OPSET, DOMAIN: 1},
            name="decoder",
        )
        functions = list(self.library.functions.values())
        return ir.Model(graph, ir_version=IR_VERSION, producer_name="fastcar", functions=functions)


def _latent(graph: _Graph, decoder: VqganDecoder, codes: ir.Value) -> ir.Value:
    """Sum of the depths' embeddings as a map (1, embedding, height, width), resized if need be."""
    op, total = graph.op, None
    by_depth = op("Transpose", op.reshape(codes, -1, decoder.depth), perm=[1, 0])
    for depth in range(decoder.depth):
        index = depth % len(decoder.codebooks)
        codebook = graph.constant(f"codebooks.{index}", decoder.codebooks[index])
        chosen = op("Gather", by_depth, np.int64(depth), axis=0)
        entries = op.cast(op("Gather", codebook, chosen, axis=0), D.INT32)
        total = entries if total is None else op("Add", total, entries)
    x = op("Mul", op("Transpose", op.cast(total, D.FLOAT), perm=[1, 0]), decoder.codebook_scale)
    shape = decoder.code_shape
    if decoder.latent_shape:
        x, shape = _resized(op, x, shape, decoder.latent_shape), decoder.latent_shape
    return op.reshape(x, 1, -1, *shape)


def _resized(op: Body, x: ir.Value, size: tuple[int, int], resized: tuple[int, int]) -> ir.Value:
    """x (embedding, places) -> (embedding, places'); numerics in toolkit/numerics/bilinear.py."""
    total = None
    for corner in corners(size, resized):
        product = op("Mul", op("Gather", x, corner.index, axis=1), corner.weight)
        total = product if total is None else op("Add", total, product)
    return total


def _conv(graph: _Graph, name: str, stage: VqganStage, x: ir.Value) -> ir.Value:
    return _of_words(graph, name, stage.convs[0], graph.call(name, "WordBytes", x))


def _upsample(graph: _Graph, name: str, stage: VqganStage, x: ir.Value) -> ir.Value:
    high, low, step = graph.call(name, "WordBytes", x)
    doubled = (double_bytes(graph.op, part) for part in (high, low))
    return _of_words(graph, name, stage.convs[0], (*doubled, step))


def _output(graph: _Graph, name: str, stage: VqganStage, x: ir.Value) -> ir.Value:
    return _of_normed(graph, name, stage.norms[0], stage.convs[0], x)


def _residual(graph: _Graph, name: str, stage: VqganStage, x: ir.Value) -> ir.Value:
    first, second, *shortcut = stage.convs
    inner = _of_normed(graph, f"{name}.first", stage.norms[0], first, x)
    outer = _of_normed(graph, f"{name}.second", stage.norms[1], second, inner)
    for conv in shortcut:
        x = _of_words(graph, f"{name}.shortcut", conv, graph.call(f"{name}.shortcut", "WordBytes", x))
    return graph.op("Add", x, outer)


def _attention(graph: _Graph, name: str, stage: VqganStage, x: ir.Value) -> ir.Value:
    *projections, project = stage.convs
    normed = graph.call(name, "WordBytes", _norm(graph, name, stage.norms[0], x))
    parts = [_of_words(graph, f"{name}.{part}", conv, normed) for part, conv in zip("qkv", projections, strict=True)]
    per_score = graph.constant(f"{name}.steps_of_score", steps_of_score(projections[0].outputs))
    bytes_of_table = zip(("high", "low"), divmod(exp2_table(ATTENTION_BITS), 256), strict=True)
    tables = [graph.constant(f"table.attention.{part}", entries.astype(np.uint8)) for part, entries in bytes_of_table]
    mixed = graph.call(name, "MapAttention", *parts, per_score, *tables)
    projected = graph.call(f"{name}.project", "WordBytes", mixed)
    return graph.op("Add", x, _of_words(graph, f"{name}.project", project, projected))


def _of_normed(graph: _Graph, name: str, norm: GroupNorm, conv: ByteConv, x: ir.Value) -> ir.Value:
    table = graph.constant("table.sigmoid", sigmoid_table())
    activated = graph.call(name, "SiLUBytes", _norm(graph, name, norm, x), table)
    return graph.call(name, "ConvBytes", *activated, *_weights(graph, name, conv), kernel=conv.weight.shape[2])


def _of_words(graph: _Graph, name: str, conv: ByteConv, words: tuple[ir.Value, ...]) -> ir.Value:
    return graph.call(name, "ConvWords", *words, *_weights(graph, name, conv), kernel=conv.weight.shape[2])


def _norm(graph: _Graph, name: str, norm: GroupNorm, x: ir.Value) -> ir.Value:
    gain, bias = (
        graph.constant(f"{name}.norm.{part}", getattr(norm, part).reshape(norm.groups, -1)) for part in ("gain", "bias")
    )
    return graph.call(name, "GroupNorm", x, gain, bias, graph.constant(f"{name}.norm.eps", np.float32(norm.eps)))


def _weights(graph: _Graph, name: str, conv: ByteConv) -> list[ir.Value]:
    """The int8 weight as uint8 with zero point 128, scale and bias."""
    return [
        graph.constant(f"{name}.weight", (conv.weight.astype(np.int16) + ZERO_POINT).astype(np.uint8)),
        graph.constant(f"{name}.weight_scale", conv.scale.reshape(-1, 1, 1)),
        graph.constant(f"{name}.bias", conv.bias.reshape(-1, 1, 1)),
    ]


_STAGES = {"conv": _conv, "upsample": _upsample, "residual": _residual, "attention": _attention, "output": _output}
