"""Brevitas weight quantizers of the two storage formats."""

from __future__ import annotations

from brevitas.inject.enum import RestrictValueType, ScalingImplType, ScalingPerOutputType, StatsOp
from brevitas.proxy.groupwise_int_parameter_quant import GroupwiseWeightQuantProxyFromInjector
from brevitas.quant.base import NarrowIntQuant
from brevitas.quant.solver.weight import WeightQuantSolver

from .recipes import Recipe
from .two_level import TwoLevelScaling

__all__ = ["Int4WeightTwoLevelGroups", "Int8WeightPerOutputChannel", "weight_quantizer"]


class Int8WeightPerOutputChannel(NarrowIntQuant, WeightQuantSolver):
    """w = q * scale[o], q in -127..127, scale = max|w[o, :]| / 127 in float32; an all-zero channel gets the floor.

    The scale is kept from the first weights seen, so a method that moves weights afterwards does not move it.

    >>> from brevitas.nn import QuantLinear
    >>> layer = QuantLinear(64, 8, bias=False, weight_quant=Int8WeightPerOutputChannel)
    >>> layer.quant_weight().scale.shape
    torch.Size([8, 1])
    """

    bit_width = 8
    scaling_impl_type = ScalingImplType.PARAMETER_FROM_STATS
    scaling_per_output_type = ScalingPerOutputType.CHANNEL
    scaling_stats_op = StatsOp.MAX
    scaling_min_val = 2.0**-24
    restrict_scaling_type = RestrictValueType.FP


class Int4WeightTwoLevelGroups(NarrowIntQuant, WeightQuantSolver):
    """w = q * multiplier[o, i // group_size] * scale[o], q in -7..7, multiplier in 1..18, |q * multiplier| <= 127.

    >>> from brevitas.nn import QuantLinear
    >>> layer = QuantLinear(64, 8, bias=False, weight_quant=Int4WeightTwoLevelGroups, weight_group_size=16)
    >>> layer.quant_weight().scale_.shape
    torch.Size([8, 4, 1])
    """

    bit_width = 4
    group_size = 32
    scaling_impl = TwoLevelScaling
    scaling_impl_type = ScalingImplType.PARAMETER_FROM_STATS
    scaling_per_output_type = ScalingPerOutputType.GROUP
    restrict_scaling_type = RestrictValueType.FP
    proxy_class = GroupwiseWeightQuantProxyFromInjector


def weight_quantizer(recipe: Recipe) -> type:
    """The quantizer of a recipe's linear layers, the head excepted."""
    if recipe.weight_bit_width == 8:
        return Int8WeightPerOutputChannel
    return Int4WeightTwoLevelGroups.let(group_size=recipe.group_size)
