"""QuantizeRows and QuantLinear."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ...toolkit.numerics.linear import MAX_ABS_FLOOR
from .body import Body

__all__ = ["ZERO_POINT", "expand_int4", "max_abs", "quant_linear", "quantize_rows", "to_uint8"]

ZERO_POINT = np.uint8(128)  # int8 travels as uint8: onnxruntime vectorizes that form, and exactly on any processor


def to_uint8(op: Body, integers: ir.Value) -> ir.Value:
    """Integer-valued float32 in -127..127 -> uint8 with zero point 128."""
    return op.cast(op("Add", integers, np.float32(ZERO_POINT)), ir.DataType.UINT8)


def max_abs(op: Body, x: ir.Value) -> ir.Value:
    return op("Max", op.reduce("Max", op("Abs", x), -1), MAX_ABS_FLOOR)


def quantize_rows(op: Body, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """x (rows, n) -> uint8 values and (rows, 1) scale; numerics in toolkit/numerics/linear.py.

    QuantizeLinear by 1 rounds half to even and adds the zero point: three operators in one.
    """
    scale = op("Div", max_abs(op, x), np.float32(127))
    return op("QuantizeLinear", op("Div", x, scale), np.float32(1), ZERO_POINT), scale


def expand_int4(op: Body, values: ir.Value, multiplier: ir.Value, group_size: int) -> ir.Value:
    """int4 (in, out) and multiplier (in / group, out) -> uint8 weights; constant, so folded when a session loads."""
    integers = op.cast(values, ir.DataType.FLOAT)
    outputs = op("Shape", multiplier, start=1)  # onnxruntime has no Shape for int4
    grouped = op("Reshape", integers, op("Concat", np.array([-1, group_size], np.int64), outputs, axis=0))
    factor = op.unsqueeze(op.cast(multiplier, ir.DataType.FLOAT), 1)
    flat = op("Concat", np.array([-1], np.int64), outputs, axis=0)
    return to_uint8(op, op("Reshape", op("Mul", grouped, factor), flat))


def quant_linear(
    op: Body, values: ir.Value, row_scale: ir.Value, weight: ir.Value, scale: ir.Value, bias: ir.Value | None = None
) -> ir.Value:
    """uint8 (rows, in) x uint8 (in, out) -> float32 (rows, out)."""
    accumulator = op("MatMulInteger", values, weight, ZERO_POINT, ZERO_POINT)
    y = op("Mul", op("Mul", op.cast(accumulator, ir.DataType.FLOAT), scale), row_scale)
    return y if bias is None else op("Add", y, bias)
