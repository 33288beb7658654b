"""LayerNorm with the quantization of its output."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from .body import Body
from .linear import quantize_rows
from .norm import int16_rows

__all__ = ["layer_norm"]


def layer_norm(
    op: Body, x: ir.Value, gain: ir.Value, bias: ir.Value, *, eps: float, hidden: int
) -> tuple[ir.Value, ir.Value]:
    """x (rows, hidden) -> uint8 values and (rows, 1) scale; numerics in toolkit/numerics/layer_norm.py."""
    integer, step = int16_rows(op, x)
    whole, n = op.cast(integer, ir.DataType.INT64), np.float32(hidden)
    total = op.reduce("Sum", whole, -1)
    centered = op("Sub", op("Mul", whole, np.int64(hidden)), total)
    squares = op("Mul", op.reduce("SumSquare", whole, -1), np.int64(hidden))
    variance = op.cast(op("Sub", squares, op("Mul", total, total)), ir.DataType.FLOAT)
    added = op("Mul", op("Div", np.float32(eps), op("Mul", step, step)), n * n)
    root = op("Sqrt", op("Max", op("Add", variance, added), np.float32(1)))
    normalized = op("Div", op.cast(centered, ir.DataType.FLOAT), root)
    return quantize_rows(op, op("Add", op("Mul", normalized, gain), bias))
