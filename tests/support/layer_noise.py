"""The noise that a recipe adds to the output of one linear layer, and that Brevitas's weight-only recipes add."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from brevitas.nn import QuantIdentity, QuantLinear
from outlier_layers import OutlierLayer

from fastcar.export.quantize.activation_quantizers import Int8DynamicActPerRow
from fastcar.export.quantize.brevitas_graph import GPTQ
from fastcar.export.quantize.equalize import equalization_scale
from fastcar.export.quantize.gptq import TwoLevelGPTQ
from fastcar.export.quantize.recipes import Recipe
from fastcar.export.quantize.weight_quantizers import weight_quantizer

__all__ = [
    "WEIGHT_ONLY",
    "GroupedColumnsGPTQ",
    "Noise",
    "WeightOnly",
    "bits_of_recipe",
    "equalized",
    "of_recipe",
    "of_weight_only",
    "second_moment",
]

GROUP = 32


@dataclass(frozen=True)
class Noise:
    """Signal-to-noise ratios of a layer's output in dB: as it runs, and with float activations or float weights."""

    total: float
    weights: float
    activations: float


@dataclass(frozen=True)
class WeightOnly:
    """A recipe of Brevitas's entry point for language models: int4, groups of 32, float scales, float activations.

    ``scale``: its ``weight_param_method``; ``zero_point``: its ``asym``. GPTQ with or without order by activation.
    """

    scale: str
    zero_point: bool = False
    act_order: bool = False

    @property
    def name(self) -> str:
        parts = [{"stats": "max-abs", "mse": "least squares", "hqo": "half-quadratic"}[self.scale]]
        return ", ".join(parts + ["zero point"] * self.zero_point + ["by activation"] * self.act_order)

    @property
    def bits(self) -> float:
        """A weight, counting 16 bits of scale and 4 of zero point a group."""
        return 4 + (16 + 4 * self.zero_point) / GROUP

    def quantizer(self) -> type:
        from brevitas_examples.common.generative.quantize import generate_quantizers  # slow to import, and it warns

        return generate_quantizers(
            weight_bit_width=4,
            weight_param_method=self.scale,
            weight_scale_precision="float_scale",
            weight_quant_type="asym" if self.zero_point else "sym",
            weight_quant_granularity="per_group",
            weight_group_size=GROUP,
            quantize_weight_zero_point=self.zero_point,
            input_scale_precision="float_scale",  # of inputs that stay float; it must be some
        )["weight_quant"]


WEIGHT_ONLY = (
    WeightOnly("stats"),
    WeightOnly("mse"),
    WeightOnly("mse", act_order=True),
    WeightOnly("stats", zero_point=True),
    WeightOnly("mse", zero_point=True),
    WeightOnly("mse", zero_point=True, act_order=True),
    WeightOnly("hqo", zero_point=True),
)
"""What Brevitas offers in this format; half-quadratic scales only with a zero point."""


class GroupedColumnsGPTQ(GPTQ):
    """Brevitas's GPTQ with Brevitas's groups, whose constant scales let a column be quantized alone.

    Brevitas quantizes the whole matrix for every column, with the same result (a test).
    """

    def single_layer_update(self, percdamp: float = 0.01, c: float = 1e4) -> None:
        quantized = self.layer.quant_weight()
        self.scale = quantized.scale_.squeeze(-1).clone()
        self.zero_point = quantized.zero_point_.expand_as(quantized.scale_).squeeze(-1).clone()
        self.levels = (-8, 7) if quantized.signed else (0, 15)
        super().single_layer_update(percdamp, c)

    def get_quant_weights(self, i, i1, permutation_list, with_quant_history=False):
        column = permutation_list[0][i1 + i]
        scale, zero_point = self.scale[:, column // GROUP], self.zero_point[:, column // GROUP]
        level = torch.round(self.layer.weight[:, column] / scale + zero_point).clamp(*self.levels)
        return ((level - zero_point) * scale).unsqueeze(0)


def bits_of_recipe(recipe: Recipe, inputs: int) -> float:
    """Bits a weight: 8 of each group's multiplier (5 are used), 32 of each channel's scale, as a bundle stores them."""
    return recipe.weight_bit_width + (8 / recipe.group_size if recipe.group_size else 0) + 32 / inputs


def second_moment(x: torch.Tensor) -> torch.Tensor:
    """x (rows, in) -> 2 / rows sum x x' (in, in), as GPTQ accumulates it."""
    return x.T @ x * (2 / len(x))


def equalized(layer: OutlierLayer, recipe: Recipe) -> OutlierLayer:
    """The same function with range moved from activations into weights, as ``quantize`` does for the layer's place."""
    places = {"norm": recipe.equalization.norm, "mixed": recipe.equalization.value, "gated": recipe.equalization.down}
    if not (alpha := places[layer.kind]):
        return layer
    scale = equalization_scale(layer.calibration.abs().amax(dim=0), [layer.weight], alpha)
    return replace(
        layer, weight=layer.weight * scale, calibration=layer.calibration / scale, held_out=layer.held_out / scale
    )


@torch.no_grad()
def of_recipe(layer: OutlierLayer, recipe: Recipe) -> Noise:
    """The recipe's whole path: equalization, activations to int8 row by row, weights by its method."""
    layer = equalized(layer, recipe)
    rounded = QuantIdentity(act_quant=Int8DynamicActPerRow)
    linear = _linear(layer.weight, weight_quantizer(recipe))
    if recipe.method == "gptq":
        _gptq(TwoLevelGPTQ, linear, second_moment(rounded(layer.calibration)), len(layer.calibration))
    quantized, inputs = linear.quant_weight().value, rounded(layer.held_out)
    expected = layer.held_out @ layer.weight.T
    return Noise(
        _ratio(expected, inputs @ quantized.T),
        _ratio(expected, layer.held_out @ quantized.T),
        _ratio(expected, inputs @ layer.weight.T),
    )


@torch.no_grad()
def of_weight_only(
    layer: OutlierLayer, recipe: WeightOnly, moment: torch.Tensor, gptq: type = GroupedColumnsGPTQ
) -> float:
    """dB of Brevitas's recipe on the layer as it is; ``moment``: ``second_moment`` of its calibration rows."""
    linear = _linear(layer.weight, recipe.quantizer())
    _gptq(gptq, linear, moment, len(layer.calibration), recipe.act_order)
    return _ratio(layer.held_out @ layer.weight.T, layer.held_out @ linear.quant_weight().value.T)


def _linear(weight: torch.Tensor, quantizer: type) -> QuantLinear:
    linear = QuantLinear(weight.shape[1], weight.shape[0], bias=False, weight_quant=quantizer).requires_grad_(False)
    linear.weight.copy_(weight)
    linear.eval().quant_weight()  # the scales, from the weights as they are
    return linear


def _gptq(method: type, linear: QuantLinear, moment: torch.Tensor, rows: int, act_order: bool = False) -> None:
    blocks = max(1, linear.in_features // GROUP)
    gptq = method(linear, "layer", act_order, len_parallel_layers=1, create_weight_orig=False, num_blocks=blocks)
    gptq.H, gptq.B, gptq.nsamples = moment.unsqueeze(0).clone(), None, rows
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # a column at a time is too little to share
    try:
        gptq.single_layer_update()
    finally:
        torch.set_num_threads(threads)


def _ratio(expected: torch.Tensor, found: torch.Tensor) -> float:
    """10 log10 of signal over error, the mean over rows of the relative error, so that every row counts the same."""
    relative = (found - expected).square().sum(dim=1) / expected.square().sum(dim=1)
    return -10 * torch.log10(relative.mean()).item()
