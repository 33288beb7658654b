"""InputSimilarity."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ...toolkit.numerics.similarity import SIMILARITY_UNIT
from .body import Body
from .linear import ZERO_POINT

__all__ = ["input_similarity"]


def input_similarity(op: Body, values: ir.Value, before: ir.Value) -> ir.Value:
    """uint8 (rows, hidden), both -> int64 (rows,); numerics in toolkit/numerics/similarity.py."""
    product = _dot(op, values, before)
    squares = op("Mul", _dot(op, values, values), _dot(op, before, before))
    norms = op("Max", op("Sqrt", squares), np.float32(1))
    scaled = op("Mul", op("Div", product, norms), np.float32(1 / SIMILARITY_UNIT))
    return op.cast(op("Round", scaled), ir.DataType.INT64)


def _dot(op: Body, one: ir.Value, other: ir.Value) -> ir.Value:
    """Row by row, float32 (rows,)."""
    product = op("MatMulInteger", op.unsqueeze(one, 1), op.unsqueeze(other, -1), ZERO_POINT, ZERO_POINT)
    return op.cast(op.reshape(product, -1), ir.DataType.FLOAT)
