"""Attention over the cache and the position itself; the cache is read in place, never concatenated."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ...toolkit.config import BackboneConfig
from ...toolkit.numerics.tables import ATTENTION_BITS, exp2_table
from .body import Body
from .linear import ZERO_POINT

__all__ = ["attention"]

LAST = exp2_table(ATTENTION_BITS).size - 1


def attention(
    op: Body,
    q: ir.Value,
    k: ir.Value,
    v: ir.Value,
    k_cache: ir.Value,
    v_cache: ir.Value,
    mask: ir.Value,
    exponent: ir.Value,
    v_scale: ir.Value,
    table: ir.Value,
    table_high: ir.Value,
    table_low: ir.Value,
    *,
    config: BackboneConfig,
) -> ir.Value:
    """float32 (rows, heads * head_dim); numerics in toolkit/numerics/attention.py.

    Weights go through p.V as two uint8 rows, high and low byte, in one product with V.
    """
    grouped = op.reshape(q, -1, config.kv_heads, config.group, config.head_dim)
    dots = op("MatMulInteger", k_cache, _swap(op, grouped), ZERO_POINT, ZERO_POINT)
    past = op("Add", _swap(op, dots), op.unsqueeze(mask, 1, 2))
    own = op("MatMulInteger", grouped, op.unsqueeze(k, -1), ZERO_POINT, ZERO_POINT)
    peak = op("Max", op.reduce("Max", past, -1), own)

    index = _index(op, peak, past, exponent)
    shape = op("Shape", past)
    weight = op("Concat", op.lookup(table_high, index, shape), op.lookup(table_low, index, shape), axis=2)
    own_weight = op.lookup(table, _index(op, peak, own, exponent), op("Shape", own))
    own_weight = op.cast(own_weight, ir.DataType.INT64)

    slots = op("Shape", mask, start=1)
    ones = op("ConstantOfShape", op("Concat", slots, np.array([1], np.int64), axis=0), value=ir.tensor([np.uint8(1)]))
    total = op("Add", _join(op, op("MatMulInteger", weight, ones), config.group), own_weight)
    own_value = op("Sub", op.cast(op.unsqueeze(v, 2), ir.DataType.INT64), np.int64(ZERO_POINT))
    mixed = _join(op, op("MatMulInteger", weight, v_cache, None, ZERO_POINT), config.group)
    mixed = op("Add", mixed, op("Mul", own_weight, own_value))
    ratio = op("Div", op.cast(mixed, ir.DataType.FLOAT), op.cast(total, ir.DataType.FLOAT))
    return op.reshape(op("Mul", ratio, v_scale), -1, config.heads * config.head_dim)


def _swap(op: Body, x: ir.Value) -> ir.Value:
    return op("Transpose", x, perm=[0, 1, 3, 2])


def _index(op: Body, peak: ir.Value, score: ir.Value, exponent: ir.Value) -> ir.Value:
    """Distance below the peak, in table steps, cut to the table's last entry, which is 0."""
    steps = op("Mul", op.cast(op("Sub", peak, score), ir.DataType.FLOAT), exponent)
    return op.cast(op("Min", steps, np.float32(LAST)), ir.DataType.INT32)


def _join(op: Body, bytes_: ir.Value, group: int) -> ir.Value:
    """int32 products of the high and the low bytes (rows, kv_heads, 2 group, n) -> int64 high * 256 + low."""
    halves = np.array([group, group], np.int64)
    high, low = op("Split", op.cast(bytes_, ir.DataType.INT64), halves, outputs=2, axis=2)
    return op("Add", op("Mul", high, np.int64(256)), low)
