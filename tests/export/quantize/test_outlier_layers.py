"""Layers with outliers: w4a8 stays near Brevitas's weight-only recipes, whose activations are float.

Small sizes; the table at the sizes of a model of 7 billion weights: tests/bench/test_layer_noise.py.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from layer_noise import (
    WEIGHT_ONLY,
    GroupedColumnsGPTQ,
    WeightOnly,
    bits_of_recipe,
    equalized,
    of_recipe,
    of_weight_only,
    second_moment,
)
from outlier_layers import KINDS, OutlierLayer, outlier_layer

from fastcar.export.quantize import RECIPES, Equalization, Recipe
from fastcar.export.quantize.brevitas_graph import GPTQ

INPUTS = {"norm": 512, "mixed": 512, "gated": 1024}
WITHIN_DB = 3.0


@pytest.fixture(scope="module", params=KINDS)
def layer(request: pytest.FixtureRequest) -> OutlierLayer:
    inputs = INPUTS[request.param]
    return outlier_layer(request.param, inputs, outputs=64, rows=4 * inputs, held_out=256)


def test_w4a8_is_near_the_best_weight_only_recipe(layer):
    """Even of those that have a zero point as well, and on weights equalized as w4a8 equalizes them."""
    recipe = RECIPES["w4a8"]
    found = of_recipe(layer, recipe)
    same = equalized(layer, recipe)
    moment = second_moment(same.calibration)
    best = {False: 0.0, True: 0.0}
    for other in WEIGHT_ONLY:
        best[other.zero_point] = max(best[other.zero_point], of_weight_only(same, other, moment))
    assert found.total > max(best.values()) - WITHIN_DB
    assert found.total > best[False] - 0.5  # float scales without a zero point: more bits than w4a8, no better
    assert bits_of_recipe(recipe, layer.weight.shape[1]) < min(other.bits for other in WEIGHT_ONLY)


def test_of_the_noise_of_w4a8_the_activations_cause_little(layer):
    noise = of_recipe(layer, RECIPES["w4a8"])
    assert noise.activations > noise.weights + 10
    assert noise.weights - 0.5 < noise.total < noise.weights + 0.1
    assert of_recipe(layer, RECIPES["w8a8"]).total > noise.total + 8


def test_equalization_keeps_outliers_out_of_the_activations():
    """Of activations from a norm with two channels 40 times larger, and of w4a8 as a whole."""
    layer = outlier_layer("norm", 512, outputs=64, rows=2048, held_out=256)
    with_it, without = (of_recipe(layer, one) for one in (RECIPES["w4a8"], _unequalized("w4a8")))
    assert with_it.activations > without.activations + 6
    assert with_it.total > without.total + 3


def test_gptq_takes_less_noise_than_nearest():
    layer = outlier_layer("mixed", 512, outputs=64, rows=2048, held_out=256)
    assert of_recipe(layer, RECIPES["w4a8"]).total > of_recipe(layer, RECIPES["w4a8-nearest"]).total + 2


@pytest.mark.parametrize("kind", ["mixed", "gated"])
def test_few_rows_of_calibration_do_not_mislead_gptq(kind):
    """As many rows as inputs: with the usual damping gated layers were 3 dB worse than nearest."""
    layer = outlier_layer(kind, 512, outputs=64, rows=512, held_out=256)
    assert of_recipe(layer, RECIPES["w4a8"]).total > of_recipe(layer, RECIPES["w4a8-nearest"]).total - 0.5


@pytest.mark.parametrize("recipe", [WeightOnly("mse"), WeightOnly("mse", True), WeightOnly("stats", True, True)])
def test_columns_quantized_alone_are_those_of_brevitas(recipe):
    layer = outlier_layer("mixed", 96, outputs=16, rows=256, held_out=64)
    moment = second_moment(layer.calibration)
    ours, brevitas = (of_weight_only(layer, recipe, moment, method) for method in (GroupedColumnsGPTQ, GPTQ))
    assert ours == pytest.approx(brevitas, abs=1e-4)
    assert ours > 12


def test_the_layers_are_as_described():
    for kind in KINDS:
        first, again = (outlier_layer(kind, 256, 8, rows=512, held_out=32) for _ in range(2))
        assert torch.equal(first.calibration, again.calibration) and torch.equal(first.weight, again.weight)
    spread = {}
    for kind in KINDS:
        x = outlier_layer(kind, 2048, 8, rows=1024, held_out=32).calibration
        size = x.square().mean(dim=0).sqrt()
        spread[kind] = (x.abs().amax(dim=0) / size.median()).topk(3).values
    assert spread["norm"][1] > 1.5 * spread["norm"][2] and spread["gated"][1] > 2 * spread["gated"][2]
    assert spread["mixed"][0] < 1.5 * spread["mixed"][2]


def _unequalized(name: str) -> Recipe:
    return replace(RECIPES[name], equalization=Equalization())
