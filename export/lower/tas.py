"""TemporalAttentionScore and ReplayDecision."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ...toolkit.config import BackboneConfig
from .body import Body
from .linear import ZERO_POINT

__all__ = ["replay_decision", "temporal_attention_score"]


def temporal_attention_score(
    op: Body,
    q: ir.Value,
    k_cache: ir.Value,
    slot_before: ir.Value,
    multiplier: ir.Value,
    *,
    config: BackboneConfig,
    tas_heads: str,
) -> ir.Value:
    """q uint8 (rows, heads, head_dim) with the cached k of slot_before -> int64 (rows,); multiplier int64 (heads,)."""
    k_before = op("Gather", k_cache, slot_before, axis=2)
    grouped = op.reshape(q, -1, config.kv_heads, config.group, config.head_dim)
    dots = op("MatMulInteger", grouped, op.unsqueeze(k_before, -1), ZERO_POINT, ZERO_POINT)
    by_head = op.cast(op.reshape(dots, -1, config.heads), ir.DataType.INT64)
    if tas_heads == "mean":
        return op("MatMul", by_head, multiplier)
    one = op.reduce(tas_heads.capitalize(), op("Mul", by_head, multiplier), -1, keepdims=False)
    return op("Mul", one, np.int64(config.heads))


def replay_decision(
    op: Body,
    score: ir.Value,
    threshold: ir.Value,
    eligible: ir.Value,
    age: ir.Value,
    max_age: ir.Value,
    pool: ir.Value,
    vote: ir.Value,
) -> ir.Value:
    """score int64 (rows,), threshold (1,), pool and vote (rows, rows) -> bool (rows,)."""
    level = op("Mul", op.reduce("Sum", pool, -1, keepdims=False), threshold)
    above = op("Greater", op("MatMul", pool, score), level)
    may = op("And", op("And", above, eligible), op("Less", age, max_age))
    votes = op("MatMul", vote, op.cast(may, ir.DataType.INT64))
    return op("GreaterOrEqual", votes, op.reduce("Sum", vote, -1, keepdims=False))
