"""SwiGLU and ReplayMLP: rows that replay are never computed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

from ...toolkit.config import BackboneConfig
from ...toolkit.numerics.tables import SIGMOID_STEPS
from .body import Body
from .linear import quantize_rows
from .norm import rms_norm

__all__ = ["by_table", "replay_mlp", "replay_normed_mlp", "swiglu"]

Linear = Callable[[Body, ir.Value, ir.Value, Sequence[ir.Value]], ir.Value]


def by_table(op: Body, x: ir.Value, table: ir.Value, width: int) -> ir.Value:
    """x (rows, width) -> the table's value at each element; QuantizeLinear is ``table_index`` in one operator."""
    steps = op("QuantizeLinear", x, np.float32(1 / SIGMOID_STEPS), np.uint16(32768))
    return op.lookup(table, op.cast(steps, ir.DataType.INT32), np.array([-1, width], np.int64))


def swiglu(op: Body, hidden: ir.Value, table: ir.Value, *, mlp: int) -> ir.Value:
    """hidden (rows, 2 mlp), gate then up -> (rows, mlp); numerics in toolkit/numerics/mlp.py."""
    gate, up = op("Split", hidden, np.array([mlp, mlp], np.int64), outputs=2, axis=1)
    return op("Mul", op("Mul", gate, by_table(op, gate, table, mlp)), up)


def replay_mlp(
    op: Body,
    x: ir.Value,
    replay: ir.Value,
    cached: ir.Value,
    gain: ir.Value,
    table: ir.Value,
    *weights: ir.Value,
    config: BackboneConfig,
    linear: Linear,
) -> tuple[ir.Value, ir.Value]:
    """x float32 and cached bfloat16 (rows, hidden), replay bool (rows,) -> float32 used, and the same as bfloat16.

    The rows that compute are gathered, go through the MLP and are scattered over the cached ones: with none left
    the products have no row and the weights are not touched. ``weights`` are those of gate_up, then of down.
    """
    rows = _computing(op, replay)
    normal, scale = rms_norm(op, op("GatherND", x, rows), gain, eps=config.norm_eps, hidden=config.hidden)
    return _scattered(op, normal, scale, rows, cached, table, weights, config, linear)


def replay_normed_mlp(
    op: Body,
    values: ir.Value,
    scale: ir.Value,
    replay: ir.Value,
    cached: ir.Value,
    table: ir.Value,
    *weights: ir.Value,
    config: BackboneConfig,
    linear: Linear,
) -> tuple[ir.Value, ir.Value]:
    """The same of rows that the decision needed the norm of: uint8 (rows, hidden) and float32 (rows, 1)."""
    rows = _computing(op, replay)
    normal, own = op("GatherND", values, rows), op("GatherND", scale, rows)
    return _scattered(op, normal, own, rows, cached, table, weights, config, linear)


def _computing(op: Body, replay: ir.Value) -> ir.Value:
    """(computing, 1) indices of the rows that do not replay."""
    return op("Transpose", op("NonZero", op("Not", replay)), perm=[1, 0])


def _scattered(
    op: Body,
    normal: ir.Value,
    scale: ir.Value,
    rows: ir.Value,
    cached: ir.Value,
    table: ir.Value,
    weights: Sequence[ir.Value],
    config: BackboneConfig,
    linear: Linear,
) -> tuple[ir.Value, ir.Value]:
    """The outputs of the computing ``rows``, whose normalized input this is, over the cached ones."""
    half = len(weights) // 2
    hidden = linear(op, normal, _a_row_each(op, scale), weights[:half])
    product, scale = quantize_rows(op, swiglu(op, hidden, table, mlp=config.mlp))
    made = linear(op, product, _a_row_each(op, scale), weights[half:])
    to_cache = op("ScatterND", cached, rows, op.cast(made, ir.DataType.BFLOAT16))
    return op.cast(to_cache, ir.DataType.FLOAT), to_cache


def _a_row_each(op: Body, scale: ir.Value) -> ir.Value:
    """(rows, 1), also with no row: onnxruntime 1.23 makes a reduction of (0, n) as wide as what it reduced."""
    return op("Reshape", scale, np.array([-1, 1], np.int64))
