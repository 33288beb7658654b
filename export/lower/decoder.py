"""The decoder as its own ONNX model: codes -> RGB."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ...toolkit.numerics.decoder import (
    ACTIVATION_MAX,
    DecoderStage,
    IntegerConv,
    IntegerDecoder,
)
from ...toolkit.numerics.vqgan import VqganDecoder
from .body import IR_VERSION, OPSET, Body
from .vqgan import lower_vqgan

__all__ = ["lower_decoder"]


def lower_decoder(decoder: IntegerDecoder | VqganDecoder) -> ir.Model:
    """Input codes int64, output frames uint8; their shapes are told by the function of each kind of decoder."""
    return lower_vqgan(decoder) if isinstance(decoder, VqganDecoder) else _lower_convolutional(decoder)


def _lower_convolutional(decoder: IntegerDecoder) -> ir.Model:
    """Input codes int64 (frames, height, width); output frames uint8 (frames, height', width', 3).

    Integers travel in float32; see ``numerics.decoder`` for why the convolutions are exact in it.
    """
    op = Body()
    codes = ir.Value(name="codes", shape=ir.Shape(["frames", "height", "width"]), type=ir.TensorType(ir.DataType.INT64))
    x = op.cast(op("Gather", decoder.codebook, codes, axis=0), ir.DataType.FLOAT)
    x = op("Transpose", x, perm=[0, 3, 1, 2])
    for stage in decoder.stages:
        x = _stage(op, stage, x)
    frames = op.cast(op("Transpose", x, perm=[0, 2, 3, 1]), ir.DataType.UINT8)
    frames.name, frames.type = "frames", ir.TensorType(ir.DataType.UINT8)
    frames.shape = ir.Shape(["frames", "image_height", "image_width", 3])
    graph = ir.Graph([codes], [frames], nodes=op.tape.nodes, opset_imports={"": OPSET}, name="decoder")
    return ir.Model(graph, ir_version=IR_VERSION, producer_name="fastcar")


def _stage(op: Body, stage: DecoderStage, x: ir.Value) -> ir.Value:
    if stage.op == "upsample":
        scales = np.array([1, 1, 2, 2], np.float32)
        mode = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        return op("Resize", x, None, scales, **mode)
    y = _conv(op, stage.convs[0], x)
    if stage.op == "residual":
        inner = _quantize(op, y, stage.inverse_scales[0])
        y = op("Add", _conv(op, stage.convs[1], inner), op("Mul", x, stage.skip))
    return _quantize(op, y, stage.inverse_scales[-1])


def _quantize(op: Body, y: ir.Value, inverse_scale: np.float32) -> ir.Value:
    return op("Clip", op("Round", op("Mul", y, inverse_scale)), np.float32(0), np.float32(ACTIVATION_MAX))


def _conv(op: Body, conv: IntegerConv, x: ir.Value) -> ir.Value:
    weight = op("Cast", conv.weight, to=int(ir.DataType.FLOAT))
    pad = conv.weight.shape[2] // 2
    total = op.cast(op("Conv", x, weight, pads=[pad] * 4), ir.DataType.INT32)
    total = op.cast(total, ir.DataType.FLOAT)  # exact; without it onnxruntime folds the factor into the weights
    scaled = op("Mul", total, conv.factor.reshape(-1, 1, 1))
    return op("Add", scaled, conv.bias.reshape(-1, 1, 1))
