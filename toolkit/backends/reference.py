"""The NumPy reference as a back end: slow, readable, and the judge of the others."""

from __future__ import annotations

import numpy as np

from ..numerics.depth import predict_codes
from ..numerics.keep import Keep, forget
from ..numerics.linear import QuantizedRows
from ..numerics.step import decode_step
from ..numerics.weights import IntegerModel
from ..program.trace import TraceLayout, layer_of
from .protocol import SteppingBackend

__all__ = ["ReferenceBackend"]


class ReferenceBackend(SteppingBackend):
    """cos and sin (positions, head_dim) float32: the rotary tables stored with the model."""

    name = "reference"
    traced = False  # there is always room

    def __init__(self, model: IntegerModel, cos: np.ndarray, sin: np.ndarray) -> None:
        super().__init__(model.config, model.layout, model.depth and model.depth.config, model.criterion)
        self.model, self.cos, self.sin = model, cos, sin
        self._keep: Keep = forget

    def caches_replaced(self) -> None:
        """Nothing is bound: every step looks the arrays up."""

    def run_step(self) -> dict[str, np.ndarray]:
        caches = {f"k_cache.{layer}": cache for layer, cache in enumerate(self.state.k_cache)}
        caches |= {f"v_cache.{layer}": cache for layer, cache in enumerate(self.state.v_cache)}
        inputs = {**self.inputs, **caches, "mask": self.state.mask}
        return decode_step(self.model, self.cos, self.sin, inputs, self._keep)

    def run_depth(self, hidden: np.ndarray) -> dict[str, np.ndarray]:
        return predict_codes(self.model, hidden, self.sampling, self._keep)

    def trace(self, tokens: np.ndarray, uniforms: np.ndarray, thresholds: np.ndarray) -> dict[str, np.ndarray]:
        """One step, as ``decode`` with uniforms (1, clips): what every node computes, by name, in order.

        Of a model whose replay is decided by TAS; see ``toolkit.program.trace.TraceLayout.arrays``: the same as the
        engine's.
        """
        kept: dict[str, np.ndarray] = {}

        def keep(name: str, result: np.ndarray | QuantizedRows) -> None:
            parts = {"": result} if isinstance(result, np.ndarray) else {f".{x}": y for x, y in vars(result).items()}
            kept.update({name + part: array.copy() for part, array in parts.items()})

        self._keep = keep
        try:
            self.decode(tokens, uniforms, thresholds)
        finally:
            self._keep = forget
        return self._in_full(kept)

    def _in_full(self, kept: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """With zeros for the rows that had no part in what only the computing rows go through."""
        full = {}
        layout = TraceLayout(self.config, self.layout.codes, self.state.rows, self.clips, self.depth)
        for name, (shape, dtype) in layout.arrays.items():
            full[name] = kept.get(name)
            if full[name] is None or full[name].shape != shape:
                computing = ~kept[f"layers.{layer_of(name)}.ReplayDecision"]
                full[name] = np.zeros(shape, dtype)
                if name in kept:
                    full[name][computing] = kept[name]
        return full
