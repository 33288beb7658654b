"""SwiGLU and the MLP that computes only the rows that do not replay."""

from __future__ import annotations

import numpy as np

from .bfloat16 import from_bfloat16, to_bfloat16
from .keep import Keep, forget
from .linear import linear, quantize_rows
from .norm import rms_norm
from .tables import sigmoid_table, table_index
from .weights import LayerWeights

__all__ = ["replay_mlp", "swiglu"]


def swiglu(gate: np.ndarray, up: np.ndarray) -> np.ndarray:
    """gate * sigmoid(gate) * up (arXiv 2002.05202, eq. 6), sigmoid from a table by a 16-bit index."""
    return gate * sigmoid_table()[table_index(gate)] * up


def replay_mlp(
    x: np.ndarray, replay: np.ndarray, cached: np.ndarray, layer: LayerWeights, eps: float, keep: Keep = forget
) -> tuple[np.ndarray, np.ndarray]:
    """MLP output of each row, cached or computed: (rows, hidden) float32, and the bfloat16 bits to cache.

    x (rows, hidden) float32 before the norm; replay (rows,) bool; cached (rows, hidden) uint16 bfloat16 bits.
    A computed output is rounded to bfloat16 too, so what is cached is what was used. ``keep`` gets the operands of both
    linear layers, of the computing rows only, if there are any.
    """
    used = cached.copy()
    computing = ~replay
    if computing.any():
        normed = rms_norm(x[computing], layer.mlp_gain, eps)
        keep("ReplayMLP.norm", normed)
        gate, up = np.split(linear(normed, layer.gate_up), 2, axis=-1)
        hidden = quantize_rows(swiglu(gate, up))
        keep("ReplayMLP.hidden", hidden)
        used[computing] = to_bfloat16(linear(hidden, layer.down))
    return from_bfloat16(used), used
