"""Convolutions over bytes; numerics in toolkit/numerics/byte_conv.py.

ConvInteger of uint8 by uint8 is exact on every processor, and one and a half times as fast as a binary32 Conv of the
same integers; of uint8 by int8 it would be slower, or saturate, where there is no VNNI.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ...toolkit.numerics.byte_conv import WORD_ZERO
from ...toolkit.numerics.linear import MAX_ABS_FLOOR
from .body import Body
from .linear import ZERO_POINT

__all__ = ["conv_bytes", "conv_words", "double_bytes", "map_peaks", "step_of", "word_bytes"]


def conv_bytes(
    op: Body,
    values: ir.Value,
    zero_point: ir.Value,
    scale: ir.Value,
    weight: ir.Value,
    weight_scale: ir.Value,
    bias: ir.Value,
    *,
    kernel: int,
) -> ir.Value:
    """uint8 (1, in, height, width) x uint8 (out, in, k, k) -> float32; weight_scale and bias (out, 1, 1)."""
    total = op("ConvInteger", values, weight, zero_point, ZERO_POINT, pads=[kernel // 2] * 4)
    scaled = op("Mul", op.cast(total, ir.DataType.FLOAT), op("Mul", weight_scale, scale))
    return op("Add", scaled, bias)


def word_bytes(op: Body, x: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value]:
    """x float32 of any shape -> high and low bytes of its 16 bits, uint8, and their step."""
    step = step_of(op, map_peaks(op, x)[1])
    words = op("QuantizeLinear", x, step, np.uint16(WORD_ZERO))
    high = op("BitShift", op.cast(words, ir.DataType.UINT32), np.uint32(8), direction="RIGHT")
    return op.cast(high, ir.DataType.UINT8), op.cast(words, ir.DataType.UINT8), step  # a cast keeps the low bits


def conv_words(
    op: Body,
    high: ir.Value,
    low: ir.Value,
    step: ir.Value,
    weight: ir.Value,
    weight_scale: ir.Value,
    bias: ir.Value,
    *,
    kernel: int,
) -> ir.Value:
    """Bytes (1, in, height, width) of a map of 16 bits -> float32 (1, out, height, width)."""
    pads = [kernel // 2] * 4
    high = op.cast(op("ConvInteger", high, weight, np.uint8(WORD_ZERO >> 8), ZERO_POINT, pads=pads), ir.DataType.FLOAT)
    low = op.cast(op("ConvInteger", low, weight, np.uint8(0), ZERO_POINT, pads=pads), ir.DataType.FLOAT)
    total = op("Add", op("Mul", high, np.float32(256)), low)
    return op("Add", op("Mul", total, op("Mul", weight_scale, step)), bias)


def double_bytes(op: Body, x: ir.Value) -> ir.Value:
    """Each value as 2 x 2. Done to bytes, so before a convolution and after its quantization."""
    mode = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return op("Resize", x, None, np.array([1, 1, 2, 2], np.float32), **mode)


def map_peaks(op: Body, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Largest value and largest magnitude of a map, scalars; a row at a time first, which keeps threads busy."""
    largest, smallest = (op(f"Reduce{kind}", op.reduce(kind, x, -1), keepdims=0) for kind in ("Max", "Min"))
    return largest, op("Max", largest, op("Neg", smallest))


def step_of(op: Body, peak: ir.Value) -> ir.Value:
    """What 16 bits of magnitudes up to ``peak`` count in."""
    return op("Div", op("Max", peak, MAX_ABS_FLOOR), np.float32(WORD_ZERO - 1))
