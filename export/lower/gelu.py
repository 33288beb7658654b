"""GELU."""

from __future__ import annotations

import onnx_ir as ir

from .body import Body
from .mlp import by_table

__all__ = ["gelu"]


def gelu(op: Body, x: ir.Value, table: ir.Value, *, width: int) -> ir.Value:
    """x (rows, width) float32 -> the same shape, with ``phi_table``; numerics in toolkit/numerics/gelu.py."""
    return op("Mul", x, by_table(op, x, table, width))
