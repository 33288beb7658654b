"""Brevitas activation quantizers: dynamic per row for linear layers, static per head for queries, keys and values."""

from __future__ import annotations

import torch
from brevitas.inject.enum import RestrictValueType, ScalingImplType
from brevitas.proxy.runtime_quant import ActQuantProxyFromInjector, DynamicActQuantProxyFromInjector
from brevitas.quant.base import IntQuant, NarrowIntQuant
from brevitas.quant.solver.act import ActQuantSolver
from torch import nn

__all__ = ["HeadScaling", "Int8DynamicActPerRow", "Int8StaticActPerHead", "RowMaxAbsScaling"]

ROW_PEAK_FLOOR = 2.0**-40  # the reference arithmetic's floor: a row below it is zero for every purpose


class RowMaxAbsScaling(nn.Module):
    """x (..., n) -> scale (..., 1) = max|x| / threshold: every position of every clip has its own."""

    def __init__(self) -> None:  # dependency injection reads the signature
        super().__init__()

    def forward(self, x: torch.Tensor, threshold: torch.Tensor) -> torch.Tensor:
        return x.detach().abs().amax(dim=-1, keepdim=True).clamp_min(ROW_PEAK_FLOOR) / threshold


class HeadScaling(nn.Module):
    """x (batch, heads, positions, head_dim) -> constant scale (1, heads, 1, 1), found by a running maximum.

    In training mode, which Brevitas's ``calibration_mode`` turns on, each call raises ``peak`` to the largest |x| of
    its head and keeps nothing else; ``settle`` or ``set_scale`` fixes ``scale`` from then on.
    """

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.register_buffer("peak", torch.zeros(1, heads, 1, 1))
        self.register_buffer("scale", torch.ones(1, heads, 1, 1))

    def set_scale(self, scale: torch.Tensor) -> None:
        """Fix the scales (heads,) float32."""
        self.scale = scale.view_as(self.scale).clone()

    def forward(self, x: torch.Tensor, threshold: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.peak = torch.maximum(self.peak, x.detach().abs().amax(dim=(0, 2, 3), keepdim=True))
        return self.scale


class Int8DynamicActPerRow(NarrowIntQuant, ActQuantSolver):
    """Input of a linear layer: q = round(x / scale) in -127..127, scale = max|x| / 127 of the row.

    >>> from brevitas.nn import QuantIdentity
    >>> QuantIdentity(act_quant=Int8DynamicActPerRow)(torch.tensor([[127.0, 0.4], [1.27, 0.004]]))
    tensor([[127.0000,   0.0000],
            [  1.2700,   0.0000]])
    """

    bit_width = 8
    scaling_impl = RowMaxAbsScaling
    scaling_impl_type = ScalingImplType.STATS
    restrict_scaling_type = RestrictValueType.FP
    proxy_class = DynamicActQuantProxyFromInjector


class Int8StaticActPerHead(IntQuant, ActQuantSolver):
    """Queries, keys or values (batch, heads, positions, head_dim): q = clip(round(x / scale[head]), -128, 127).

    >>> from brevitas.nn import QuantIdentity
    >>> quant = QuantIdentity(act_quant=Int8StaticActPerHead, heads=2)
    >>> quant(torch.full((1, 2, 1, 2), 0.6)).flatten()
    tensor([1., 1., 1., 1.])
    """

    bit_width = 8
    scaling_impl = HeadScaling
    scaling_impl_type = ScalingImplType.STATS
    restrict_scaling_type = RestrictValueType.FP
    proxy_class = ActQuantProxyFromInjector
