"""Brevitas computes the integers; integers times scales are its values exactly."""

from __future__ import annotations

import pytest
import torch
from brevitas.nn import QuantLinear

from fastcar.export.quantize.two_level_fit import MULTIPLIER_MAX, fit_multiplier, fit_two_level
from fastcar.export.quantize.weight_quantizers import Int4WeightTwoLevelGroups, Int8WeightPerOutputChannel

SHAPES = [(96, 37, 32), (48, 5, 16), (70, 9, 7)]


def four_bit(inputs: int, outputs: int, group: int) -> QuantLinear:
    torch.manual_seed(inputs)
    quant = Int4WeightTwoLevelGroups.let(group_size=group)
    layer = QuantLinear(inputs, outputs, bias=False, weight_quant=quant).requires_grad_(False)
    layer.weight.mul_(torch.logspace(-2, 1, outputs)[:, None])
    return layer


@pytest.mark.parametrize(("inputs", "outputs", "group"), SHAPES)
def test_two_level_integers_are_exact(inputs, outputs, group):
    layer = four_bit(inputs, outputs, group)
    quantized = layer.quant_weight()
    scaling = layer.weight_quant.tensor_quant.scaling_impl
    values = quantized.int().view(outputs, -1, group)
    expanded = values * scaling.multiplier
    assert torch.equal(expanded.view(outputs, inputs) * scaling.channel_scale.view(-1, 1), quantized.value)
    assert values.abs().max() <= 7
    assert expanded.abs().max() <= 127
    assert scaling.multiplier.min() >= 1
    assert scaling.multiplier.max() <= MULTIPLIER_MAX
    assert torch.equal(scaling.multiplier, scaling.multiplier.round())


@pytest.mark.parametrize(("inputs", "outputs", "group"), SHAPES)
def test_two_level_error_is_near_that_of_free_group_scales(inputs, outputs, group):
    """The integer multiplier may cost a little over a float scale for each group, max-abs, and usually gains."""
    layer = four_bit(inputs, outputs, group)
    grouped = layer.weight.view(outputs, -1, group)
    free = grouped.abs().amax(-1, keepdim=True) / 7
    reference = (grouped - torch.clamp(torch.round(grouped / free), -7, 7) * free).square().sum()
    error = (layer.weight - layer.quant_weight().value).square().sum()
    assert error < 1.1 * reference


def test_multiplier_is_the_best_of_all():
    torch.manual_seed(0)
    grouped, importance = torch.randn(6, 4, 8), torch.rand(4, 8)
    channel_scale, multiplier = fit_two_level(grouped, importance)
    best, least = fit_multiplier(grouped, importance, channel_scale)
    assert torch.equal(best.unsqueeze(-1), multiplier)
    for candidate in range(1, MULTIPLIER_MAX + 1):
        scale = channel_scale * candidate
        error = (grouped - torch.clamp(torch.round(grouped / scale), -7, 7) * scale).square() * importance
        assert (least <= error.sum(-1) + 1e-7).all()


def test_importance_moves_the_choice():
    """An important small weight keeps its value when the large one beside it does not matter."""
    grouped = torch.tensor([[[1.0, 0.06, 0.06, -0.06]]])
    important = torch.tensor([[0.0, 1.0, 1.0, 1.0]])
    scale, multiplier = fit_two_level(grouped, important)
    rounded = torch.clamp(torch.round(grouped / (scale * multiplier)), -7, 7) * scale * multiplier
    assert torch.allclose(rounded[0, 0, 1:], grouped[0, 0, 1:], atol=0.01)
    scale, multiplier = fit_two_level(grouped, torch.ones(1, 4))
    assert (scale * multiplier * 7).item() == pytest.approx(1.0, abs=0.15)


@pytest.mark.parametrize(("inputs", "outputs"), [(96, 37), (1, 3)])
def test_eight_bit_integers_are_exact(inputs, outputs):
    torch.manual_seed(0)
    layer = QuantLinear(inputs, outputs, bias=False, weight_quant=Int8WeightPerOutputChannel).requires_grad_(False)
    quantized = layer.quant_weight()
    assert torch.equal(quantized.int() * quantized.scale, quantized.value)
    assert torch.equal(quantized.int().abs().amax(1), torch.full((outputs,), 127, dtype=torch.int8))
    assert quantized.scale.dtype == torch.float32


@pytest.mark.parametrize("quant", [Int8WeightPerOutputChannel, Int4WeightTwoLevelGroups])
def test_zero_rows_stay_zero_under_a_positive_scale(quant):
    layer = QuantLinear(64, 4, bias=False, weight_quant=quant).requires_grad_(False)
    layer.weight[2] = 0
    quantized = layer.quant_weight()
    assert quantized.scale.min() > 0
    assert torch.isfinite(quantized.value).all()
    assert not quantized.value[2].any()
    assert quantized.value[1].any()
