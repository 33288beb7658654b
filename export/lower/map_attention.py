"""Attention over the places of a map; numerics in toolkit/numerics/map_attention.py."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ...toolkit.numerics.linear import MAX_ABS_FLOOR
from ...toolkit.numerics.tables import ATTENTION_BITS, exp2_table
from .body import Body
from .byte_conv import map_peaks
from .linear import ZERO_POINT

__all__ = ["map_attention"]

D = ir.DataType
LAST = exp2_table(ATTENTION_BITS).size - 1


def map_attention(
    op: Body,
    q: ir.Value,
    k: ir.Value,
    v: ir.Value,
    steps_of_score: ir.Value,
    table_high: ir.Value,
    table_low: ir.Value,
) -> ir.Value:
    """q, k, v and the result float32 (1, channels, height, width).

    Scores have a column for each place that asks: so the weights are already the right operand of the product with v.
    """
    shape = op("Shape", q)
    flat = op("Concat", op("Shape", q, start=1, end=2), np.array([-1], np.int64), axis=0)
    (q_int, q_scale), (k_int, k_scale), (v_int, v_scale) = (_int8(op, x, flat) for x in (q, k, v))
    score = op("MatMulInteger", op("Transpose", k_int, perm=[1, 0]), q_int, ZERO_POINT, ZERO_POINT)
    exponent = op("Mul", op("Mul", q_scale, k_scale), steps_of_score)
    below = op.cast(op("Sub", op.reduce("Max", score, 0), score), D.FLOAT)
    index = op.cast(op("Min", op("Mul", below, exponent), np.float32(LAST)), D.INT32)
    high, low = (op.lookup(table, index, op("Shape", index)) for table in (table_high, table_low))
    total = _join(op, *(op.reduce("Sum", op.cast(part, D.INT32), 0) for part in (high, low)))
    products = (op("MatMulInteger", v_int, part, ZERO_POINT) for part in (high, low))
    mixed = _join(op, *(op.cast(product, D.INT64) for product in products), integer=np.int64)
    ratio = op("Div", op.cast(mixed, D.FLOAT), op.cast(total, D.FLOAT))
    return op("Reshape", op("Mul", ratio, v_scale), shape)


def _int8(op: Body, x: ir.Value, flat: ir.Value) -> tuple[ir.Value, ir.Value]:
    """(channels, places) as uint8 with zero point 128, and the scale."""
    scale = op("Div", op("Max", map_peaks(op, x)[1], MAX_ABS_FLOOR), np.float32(127))
    return op("Reshape", op("QuantizeLinear", x, scale, ZERO_POINT), flat), scale


def _join(op: Body, high: ir.Value, low: ir.Value, integer: type[np.integer] = np.int32) -> ir.Value:
    return op("Add", op("Mul", high, integer(256)), low)
