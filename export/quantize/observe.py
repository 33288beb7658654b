"""What one float decoder layer does on calibration clips, in running maxima: a few vectors, however many clips."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager

import torch
from torch import nn

from ..llama import DecoderLayer

__all__ = ["OBSERVED_INPUTS", "LayerPeaks"]

OBSERVED_INPUTS = ("self_attn.q_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.down_proj")
"""One of the projections that read the same input."""


class LayerPeaks:
    """``inputs``: max|x| (channels,) by projection of ``OBSERVED_INPUTS``. ``q``, ``unrotated`` (heads,), ``k``
    (kv_heads,): of queries after and before rotary embedding, and keys. ``v`` (kv_heads, head_dim): of values, a
    channel each, because equalization may still move them."""

    def __init__(self) -> None:
        self.inputs: dict[str, torch.Tensor] = {}
        self.heads: dict[str, torch.Tensor] = {}

    @property
    def q(self) -> torch.Tensor:
        return self.heads["q"]

    @property
    def unrotated(self) -> torch.Tensor:
        return self.heads["unrotated"]

    @property
    def k(self) -> torch.Tensor:
        return self.heads["k"]

    @property
    def v(self) -> torch.Tensor:
        return self.heads["v"]

    @torch.no_grad()
    def run(self, layer: DecoderLayer, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """The layer's output for x (clips, positions, hidden), observed on the way."""
        with self._observing(layer):
            return layer(x, cos, sin, self._observe_heads)

    def _observe_heads(self, name: str, x: torch.Tensor) -> None:
        self._raise(self.heads, name, x.abs().amax(dim=(0, 2) if name == "v" else (0, 2, 3)))

    @contextmanager
    def _observing(self, layer: DecoderLayer):
        hooks = [layer.get_submodule(name).register_forward_pre_hook(self._observer(name)) for name in OBSERVED_INPUTS]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _observer(self, name: str) -> Callable[[nn.Module, tuple[torch.Tensor, ...]], None]:
        return lambda _, inputs: self._raise(self.inputs, name, inputs[0].abs().amax(dim=(0, 1)))

    @staticmethod
    def _raise(peaks: dict[str, torch.Tensor], name: str, found: torch.Tensor) -> None:
        peaks[name] = torch.maximum(peaks[name], found) if name in peaks else found
