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
    rows, slots = op("Shape", mask, start=0, end=1), op("Shape", mask, start=1)
    shape = op("Concat", rows, np.array([config.kv_heads, config.group], np.int64), slots, axis=0)
    weight = op("Concat", op.lookup(table_high, index, shape), op.lookup(table_low, index, shape), axis=2)
    own_shape = np.array([-1, config.kv_heads, config.group, 1], np.int64)
    own_weight = op.lookup(table, _index(op, peak, own, exponent), own_shape)

    sums = op.reduce("Sum", op.cast(weight, ir.DataType.INT32), -1)  # a product with ones would be 5 x slower
    total = op("Add", _join(op, sums, config.group, np.int32), own_weight)
    own_value = op("Sub", op.cast(op.unsqueeze(v, 2), ir.DataType.INT32), np.int32(ZERO_POINT))
    own_mixed = op.cast(op("Mul", own_weight, own_value), ir.DataType.INT64)
    products = op.cast(op("MatMulInteger", weight, v_cache, None, ZERO_POINT), ir.DataType.INT64)
    mixed = op("Add", _join(op, products, config.group, np.int64), own_mixed)
    ratio = op("Div", op.cast(mixed, ir.DataType.FLOAT), op.cast(total, ir.DataType.FLOAT))
    return op.reshape(op("Mul", ratio, v_scale), -1, config.heads * config.head_dim)


def _swap(op: Body, x: ir.Value) -> ir.Value:
    return op("Transpose", x, perm=[0, 1, 3, 2])


def _index(op: Body, peak: ir.Value, score: ir.Value, exponent: ir.Value) -> ir.Value:
    """Distance below the peak, in table steps, cut to the table's last entry, which is 0."""
    steps = op("Mul", op.cast(op("Sub", peak, score), ir.DataType.FLOAT), exponent)
    return op.cast(op("Min", steps, np.float32(LAST)), ir.DataType.INT32)


def _join(op: Body, products: ir.Value, group: int, integer: type[np.integer]) -> ir.Value:
    """Products of the high and of the low bytes (rows, kv_heads, 2 group, n) -> high * 256 + low."""
    high, low = op("Split", products, np.array([group, group], np.int64), outputs=2, axis=2)
    return op("Add", op("Mul", high, integer(256)), low)
