"""GroupNorm; numerics in toolkit/numerics/group_norm.py."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ...toolkit.numerics.group_norm import VARIANCE_FLOOR
from .body import Body
from .byte_conv import step_of

__all__ = ["group_norm"]

D = ir.DataType


def group_norm(op: Body, x: ir.Value, gain: ir.Value, bias: ir.Value, eps: ir.Value) -> ir.Value:
    """x (1, channels, height, width) -> the same shape; gain and bias (groups, channels / groups)."""
    groups = op("Shape", gain, start=0, end=1)
    by_group = op("Concat", groups, np.array([-1], np.int64), axis=0)
    rows = op("Reshape", x, by_group)
    peak = op("Max", op.reduce("Max", rows, -1, False), op("Neg", op.reduce("Min", rows, -1, False)))
    step = step_of(op, peak)
    total, squares = _sums(op, x, rows, step, by_group)

    count = op("Div", op("Size", x), groups)
    n = op.cast(count, D.FLOAT)
    mean = op("Div", op.cast(total, D.FLOAT), n)
    whole = op.cast(op("Round", mean), D.INT64)
    shifted = op("Sub", total, op("Mul", count, whole))
    rest = op("Div", op.cast(shifted, D.FLOAT), n)
    around = op("Sub", squares, op("Mul", whole, op("Add", total, shifted)))
    spread = op("Sub", op("Div", op.cast(around, D.FLOAT), n), op("Mul", rest, rest))
    variance = op("Add", spread, op("Div", eps, op("Mul", step, step)))
    deviation = op("Mul", op("Sqrt", op("Max", variance, VARIANCE_FLOOR)), step)

    factor = op("Div", gain, op.unsqueeze(deviation, 1))
    offset = op("Sub", bias, op("Mul", op.unsqueeze(op("Mul", mean, step), 1), factor))
    return op("Add", op("Mul", x, op.reshape(factor, -1, 1, 1)), op.reshape(offset, -1, 1, 1))


def _sums(op: Body, x: ir.Value, rows: ir.Value, step: ir.Value, by_group: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Sum and sum of squares of each group's int16 values, int64 (groups,).

    In binary64, where they are exact and onnxruntime is several times faster than in int64.
    """
    integers = op("QuantizeLinear", rows, step, axis=0, output_dtype=int(D.INT16))
    values = op("Reshape", op.cast(integers, D.DOUBLE), op("Shape", x))
    lines = (op.reduce(kind, values, -1) for kind in ("Sum", "SumSquare"))
    return tuple(op.cast(op.reduce("Sum", op("Reshape", line, by_group), -1, False), D.INT64) for line in lines)
