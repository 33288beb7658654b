"""RMSNorm with the quantization of its output."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from .body import Body
from .linear import max_abs, to_uint8

__all__ = ["rms_norm"]


def rms_norm(op: Body, x: ir.Value, gain: ir.Value, *, eps: float, hidden: int) -> tuple[ir.Value, ir.Value]:
    """x (rows, hidden) -> uint8 values and (rows, 1) scale; numerics in toolkit/numerics/norm.py."""
    up = op("Div", np.float32(32767), max_abs(op, x))
    integer = op("Round", op("Mul", x, up))
    wide = op.cast(integer, ir.DataType.INT64)
    squares = op.cast(op.reduce("Sum", op("Mul", wide, wide), -1), ir.DataType.FLOAT)
    mean = op("Div", squares, np.float32(hidden))
    root = op("Sqrt", op("Add", mean, op("Mul", op("Mul", np.float32(eps), up), up)))
    scaled = op("Mul", integer, gain)
    peak = max_abs(op, scaled)
    values = op("Round", op("Mul", scaled, op("Div", np.float32(127), peak)))
    return to_uint8(op, values), op("Div", op("Div", peak, root), np.float32(127))
