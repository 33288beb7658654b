"""The NumPy reference as a back end: slow, readable, and the judge of the others."""

from __future__ import annotations

import numpy as np

from ..numerics.step import decode_step
from ..numerics.weights import IntegerModel
from .protocol import SteppingBackend

__all__ = ["ReferenceBackend"]


class ReferenceBackend(SteppingBackend):
    """cos and sin (positions, head_dim) float32: the rotary tables stored with the model."""

    name = "reference"

    def __init__(self, model: IntegerModel, cos: np.ndarray, sin: np.ndarray) -> None:
        super().__init__(model.config, model.layout)
        self.model, self.cos, self.sin = model, cos, sin

    def caches_replaced(self) -> None:
        """Nothing is bound: every step looks the arrays up."""

    def run_step(self) -> dict[str, np.ndarray]:
        caches = {f"k_cache.{layer}": cache for layer, cache in enumerate(self.state.k_cache)}
        caches |= {f"v_cache.{layer}": cache for layer, cache in enumerate(self.state.v_cache)}
        return decode_step(self.model, self.cos, self.sin, {**self.inputs, **caches, "mask": self.state.mask})
