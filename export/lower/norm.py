"""RMSNorm with the quantization of its output."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from .body import Body
from .linear import max_abs, quantize_rows

__all__ = ["int16_rows", "rms_norm"]


def int16_rows(op: Body, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """x (rows, hidden) -> integers of 16 bits as float32, and their (rows, 1) step."""
    step = op("Div", max_abs(op, x), np.float32(32767))
    return op("Round", op("Div", x, step)), step


def rms_norm(op: Body, x: ir.Value, gain: ir.Value, *, eps: float, hidden: int) -> tuple[ir.Value, ir.Value]:
    """x (rows, hidden) -> uint8 values and (rows, 1) scale; numerics in toolkit/numerics/norm.py."""
    integer, step = int16_rows(op, x)
    squares = op.reduce("SumSquare", op.cast(integer, ir.DataType.INT64), -1)
    mean = op("Div", op.cast(squares, ir.DataType.FLOAT), np.float32(hidden))
    root = op("Sqrt", op("Add", mean, op("Div", np.float32(eps), op("Mul", step, step))))
    values, scale = quantize_rows(op, op("Mul", integer, gain))
    return values, op("Div", scale, root)
