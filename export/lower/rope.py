"""RotaryEmbedding with the quantization of q, k and v."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ...toolkit.config import BackboneConfig
from .body import Body
from .linear import ZERO_POINT

__all__ = ["quantize_heads", "rotary_embedding"]


def quantize_heads(op: Body, x: ir.Value, scale: ir.Value, heads: int) -> ir.Value:
    """x (rows, heads, head_dim) -> uint8, with scale (heads,)."""
    return op("QuantizeLinear", x, scale, np.full(heads, ZERO_POINT), axis=1)


def rotary_embedding(
    op: Body, qkv: ir.Value, cos: ir.Value, sin: ir.Value, scale: ir.Value, *, config: BackboneConfig, pre: bool
) -> tuple[ir.Value, ...]:
    """qkv (rows, inner) -> q, k, v uint8 and, with ``pre``, q before it is turned; cos and sin (rows, head_dim).

    scale (heads + 2 kv_heads,): q, k and v are quantized in one go, as they lie in one row.
    """
    turned_heads, half = config.heads + config.kv_heads, config.head_dim // 2
    heads = op.reshape(qkv, -1, turned_heads + config.kv_heads, config.head_dim)
    sizes = np.array([turned_heads, config.kv_heads], np.int64)
    straight, value = op("Split", heads, sizes, outputs=2, axis=1)
    low, high = op("Split", straight, np.array([half, half], np.int64), outputs=2, axis=2)
    swapped = op("Concat", high, low, axis=2)
    turned = op("Add", op("Mul", straight, op.unsqueeze(cos, 1)), op("Mul", swapped, op.unsqueeze(sin, 1)))
    integers = quantize_heads(op, op("Concat", turned, value, axis=1), scale, turned_heads + config.kv_heads)
    parts = np.array([config.heads, config.kv_heads, config.kv_heads], np.int64)
    q, k, v = op("Split", integers, parts, outputs=3, axis=1)
    if not pre:
        return q, k, v
    rest = np.array([config.heads, 2 * config.kv_heads], np.int64)
    q_straight, _ = op("Split", heads, rest, outputs=2, axis=1)
    q_scale, _ = op("Split", scale, rest, outputs=2, axis=0)
    return q, k, v, quantize_heads(op, q_straight, q_scale, config.heads)
