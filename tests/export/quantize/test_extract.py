"""What is exported are Brevitas's integers, and they compute what Brevitas computes."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from brevitas.nn import QuantIdentity, QuantLinear

from fastcar.export.quantize import RECIPES, Equalization, Recipe, quantize_with_report
from fastcar.export.quantize.activation_quantizers import Int8DynamicActPerRow
from fastcar.export.quantize.calibrate import quantizer_scaling
from fastcar.export.quantize.extract import linear_weights
from fastcar.export.quantize.weight_quantizers import Int4WeightTwoLevelGroups, Int8WeightPerOutputChannel
from fastcar.toolkit.numerics.linear import linear, quantize_rows

PROJECTIONS = {
    "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "output": ("self_attn.o_proj",),
    "gate_up": ("mlp.gate_proj", "mlp.up_proj"),
    "down": ("mlp.down_proj",),
}
NEAREST = Recipe("w4a8-nearest", 4, 16, equalization=Equalization(0.5, 0.5, 0.5))
GPTQ = Recipe("w4a8-gptq", 4, 16, "gptq")
GPTQ8 = Recipe("w8a8-gptq", 8, None, "gptq")


@pytest.fixture(scope="module", params=[*RECIPES.values(), NEAREST, GPTQ, GPTQ8], ids=lambda recipe: recipe.name)
def quantized(request, trained, layout, calibration):
    made = quantize_with_report(trained, layout, request.param, calibration)
    return SimpleNamespace(recipe=request.param, model=made.model, network=made.network)


def test_integers_times_scales_are_brevitas_values_exactly(quantized):
    compared = 0
    for index, layer in enumerate(quantized.network.layers):
        for field, names in PROJECTIONS.items():
            weights = getattr(quantized.model.layers[index], field)
            values = torch.cat([layer.get_submodule(name).quant_weight().value for name in names])
            assert np.array_equal((weights.expanded() * weights.scale).T, values.detach().numpy())
            compared += 1
    head = quantized.model.head
    assert np.array_equal((head.expanded() * head.scale).T, quantized.network.final.linear.quant_weight().value.numpy())
    assert compared == 8


def test_ranges_and_formats(quantized):
    recipe = quantized.recipe
    for name, weights in quantized.model.linears():
        bits = 8 if name == "head" else recipe.weight_bit_width
        assert (weights.bit_width, weights.group_size) == (bits, recipe.group_size if bits == 4 else None)
        assert np.abs(weights.values).max() == (127 if bits == 8 else 7)
        expanded = weights.values.astype(int)
        if bits == 4:
            expanded *= np.repeat(weights.multiplier.astype(int), weights.group_size, axis=0)
            assert 1 <= weights.multiplier.min() and weights.multiplier.max() <= 18
        assert np.abs(expanded).max() <= 127
        assert np.array_equal(expanded, weights.expanded())
        assert weights.scale.min() > 0
        assert weights.values.flags.c_contiguous


def test_shapes(quantized, layout):
    model, config = quantized.model, quantized.model.config
    layer = model.layers[1]
    assert [w.values.shape for w in (layer.qkv, layer.output, layer.gate_up, layer.down, model.head)] == [
        (64, 128),
        (64, 64),
        (64, 192),
        (96, 64),
        (64, 32),
    ]
    assert (layer.q_scale.shape, layer.k_scale.shape, layer.v_scale.shape) == ((4,), (2,), (2,))
    assert model.embedding.dtype == np.float16 and model.embedding.shape == (config.vocab, config.hidden)
    assert model.layout == layout


def test_scales_of_heads_are_those_the_network_uses(quantized):
    for layer, weights in zip(quantized.network.layers, quantized.model.layers, strict=True):
        for name in "qkv":
            used = quantizer_scaling(getattr(layer.self_attn, f"{name}_quant")).scale.flatten().numpy()
            assert np.array_equal(used, getattr(weights, f"{name}_scale"))


@pytest.mark.parametrize(("rows", "inputs", "outputs"), [(5, 96, 37), (1, 32, 1), (3, 160, 50)])
@pytest.mark.parametrize("quant", [Int8WeightPerOutputChannel, Int4WeightTwoLevelGroups])
@pytest.mark.parametrize("bias", [False, True])
def test_integer_linear_equals_the_fake_quantized_one(rows, inputs, outputs, quant, bias):
    generator = torch.Generator().manual_seed(rows)
    x = torch.randn(rows, inputs, generator=generator) * torch.logspace(-3, 3, rows)[:, None]
    layer = QuantLinear(inputs, outputs, bias=bias, weight_quant=quant).requires_grad_(False)
    expected = layer(QuantIdentity(act_quant=Int8DynamicActPerRow)(x)).numpy()
    got = linear(quantize_rows(x.numpy()), linear_weights(layer))
    terms = np.abs(x.numpy()) @ np.abs(layer.weight.detach().numpy()).T  # what rounding is relative to: they may cancel
    terms += np.abs(layer.bias.numpy()) if bias else 0
    assert (np.abs(got - expected) <= 1e-6 * terms).all()
    assert np.abs(expected).max(axis=1).min() > 0


def test_layers_joined_along_outputs_share_one_input():
    quant = Int4WeightTwoLevelGroups
    layers = [QuantLinear(32, n, bias=True, weight_quant=quant).requires_grad_(False) for n in (3, 5)]
    joined, parts = linear_weights(*layers), [linear_weights(layer) for layer in layers]
    assert np.array_equal(joined.values, np.concatenate([part.values for part in parts], axis=1))
    assert np.array_equal(joined.expanded()[:, 3:], parts[1].expanded())
    assert np.array_equal(joined.bias, torch.cat([layer.bias for layer in layers]).numpy()) and joined.bias.all()
    x = QuantIdentity(act_quant=Int8DynamicActPerRow)(torch.randn(2, 32))
    expected = torch.cat([layer(x) for layer in layers], dim=1).numpy()
    np.testing.assert_allclose(linear(quantize_rows(x.numpy()), joined), expected, atol=1e-5)


def test_changed_integers_are_noticed(quantized):
    """The comparison above is not vacuous: one integer off by one is a difference."""
    weights = quantized.model.layers[0].down
    values = weights.values.copy()
    values[0, 0] += 1 if values[0, 0] < 0 else -1
    changed = replace(weights, values=values)
    reference = quantized.network.layers[0].mlp.down_proj.quant_weight().value.numpy()
    assert not np.array_equal((changed.expanded() * changed.scale).T, reference)
