"""SwiGLU and the MLP that computes only the rows that do not replay."""

from __future__ import annotations

import numpy as np

from .bfloat16 import from_bfloat16, to_bfloat16
from .keep import Keep, forget
from .linear import QuantizedRows, linear, quantize_rows
from .norm import rms_norm
from .tables import sigmoid_table, table_index
from .weights import LayerWeights

__all__ = ["replay_mlp", "replay_normed_mlp", "swiglu"]


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
        used[computing] = _computed(normed, layer, keep)
    return from_bfloat16(used), used


def replay_normed_mlp(
    normed: QuantizedRows, replay: np.ndarray, cached: np.ndarray, layer: LayerWeights, keep: Keep = forget
) -> tuple[np.ndarray, np.ndarray]:
    """The same where the decision needed the norm of every row."""
    used = cached.copy()
    computing = ~replay
    if computing.any():
        rows = QuantizedRows(normed.values[computing], normed.scale[computing])
        used[computing] = _computed(rows, layer, keep)
    return from_bfloat16(used), used


def _computed(normed: QuantizedRows, layer: LayerWeights, keep: Keep) -> np.ndarray:
    """bfloat16 bits of the output of rows that all compute."""
    keep("ReplayMLP.norm", normed)
    gate, up = np.split(linear(normed, layer.gate_up), 2, axis=-1)
    hidden = quantize_rows(swiglu(gate, up))
    keep("ReplayMLP.hidden", hidden)
    return to_bfloat16(linear(hidden, layer.down))
