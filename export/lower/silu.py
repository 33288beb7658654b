"""SiLU to bytes; numerics in toolkit/numerics/silu.py."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ...toolkit.numerics.silu import SILU_DEPTH
from ...toolkit.numerics.tables import SIGMOID_STEPS
from .body import Body
from .byte_conv import map_peaks, step_of

__all__ = ["silu_bytes"]


def silu_bytes(op: Body, x: ir.Value, table: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value]:
    """x (1, channels, height, width) -> uint8 values of the same shape, uint8 zero point and float32 scale.

    ``table`` is ``sigmoid_table``. The table made of it holds float32: GatherElements of bytes is twice as slow.
    """
    largest, peak = map_peaks(op, x)
    step = step_of(op, peak)
    top = op("Max", _silu(op, op.reshape(largest, 1), table), np.float32(0))
    scale = op("Squeeze", op("Div", op("Add", top, SILU_DEPTH), np.float32(255)))
    zero_point = op("Round", op("Div", SILU_DEPTH, scale))
    entries = _silu(op, op("Mul", np.arange(-32768, 32768, dtype=np.float32), step), table)
    steps = op("Add", op("Round", op("Div", entries, scale)), zero_point)
    own = op("Clip", steps, np.float32(0), np.float32(255))
    index = op.cast(op("QuantizeLinear", x, step, np.uint16(32768)), ir.DataType.INT32)
    values = op.cast(op.lookup(own, index, op("Shape", x)), ir.DataType.UINT8)
    return values, op.cast(zero_point, ir.DataType.UINT8), scale


def _silu(op: Body, x: ir.Value, table: ir.Value) -> ir.Value:
    """Of a flat x."""
    steps = op("QuantizeLinear", x, np.float32(1 / SIGMOID_STEPS), np.uint16(32768))
    return op("Mul", x, op("GatherElements", table, op.cast(steps, ir.DataType.INT32), axis=0))
