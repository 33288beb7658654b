"""Sample: guidance, temperature, top-k and top-p from a supplied uniform."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ...toolkit.numerics.sampling import LOG2_STEPS
from ...toolkit.numerics.tables import SAMPLE_BITS, exp2_table
from .body import Body

__all__ = ["guided_logits", "sample"]


def guided_logits(
    op: Body, logits: ir.Value, conditional: ir.Value, unconditional: ir.Value, guidance: ir.Value
) -> ir.Value:
    """logits (rows, codes) and the rows of each clip (clips,) -> (clips, codes)."""
    with_prompt = op("Gather", logits, conditional, axis=0)
    without = op("Gather", logits, unconditional, axis=0)
    return op("Add", without, op("Mul", guidance, op("Sub", with_prompt, without)))


def sample(
    op: Body,
    logits: ir.Value,
    uniform: ir.Value,
    inverse_temperature: ir.Value,
    top_k: ir.Value,
    top_p: ir.Value,
    table: ir.Value,
    *,
    codes: int,
) -> ir.Value:
    """logits (clips, codes), uniform int64 (clips,) below 2^24 -> int64 (clips,); see toolkit/numerics/sampling.py."""
    scaled = op("Mul", logits, inverse_temperature)
    ranked, order = op("TopK", scaled, np.array([codes], np.int64), outputs=2, axis=-1, sorted=1)
    best = op("Slice", ranked, np.array([0]), np.array([1]), np.array([1]))
    steps = op("Mul", op("Sub", best, ranked), LOG2_STEPS)
    index = op.cast(op("Min", steps, np.float32(exp2_table(SAMPLE_BITS).size - 1)), ir.DataType.INT32)
    weight = op.cast(op.lookup(table, index, op("Shape", ranked)), ir.DataType.INT64)
    weight = op("Where", op("Less", np.arange(codes, dtype=np.int64), top_k), weight, np.int64(0))
    before = op("CumSum", weight, np.int64(1), exclusive=1)
    limit = op("Mul", op.reduce("Sum", weight, 1), top_p)
    weight = op("Where", op("Less", op("Mul", before, np.int64(65536)), limit), weight, np.int64(0))
    cumulative = op("CumSum", weight, np.int64(1))
    target = op("Div", op("Mul", op.unsqueeze(uniform, 1), op.reduce("Sum", weight, 1)), np.int64(1 << 24))
    passed = op.cast(op("LessOrEqual", cumulative, target), ir.DataType.INT64)
    rank = op.reduce("Sum", passed, 1)
    return op("Squeeze", op("GatherElements", order, rank, axis=1), np.array([1]))
