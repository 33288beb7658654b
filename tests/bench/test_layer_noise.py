"""What 4 bits cost at the size of a model of 7 billion weights: the noise at the output of single linear layers.

Synthetic layers (tests/support/outlier_layers.py says with which statistics), with a part of the outputs: each output
channel is quantized by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

import pytest
from layer_noise import WEIGHT_ONLY, bits_of_recipe, equalized, of_recipe, of_weight_only, second_moment
from outlier_layers import OutlierLayer, outlier_layer

from fastcar.export.quantize import RECIPES

SIZES = [("norm", 4096, 1024, 2), ("mixed", 4096, 1024, 2), ("gated", 2816, 256, 4), ("gated", 11008, 64, 2)]
"""Kind, inputs, outputs, rows of calibration an input. Fewer outputs, less time: the last takes 15 minutes."""
HELD_OUT = 1024
WITHIN_DB = 3.0  # of the best weight-only recipe, as in tests/export/quantize/test_outlier_layers.py


@pytest.mark.parametrize(("kind", "inputs", "outputs", "rows"), SIZES)
def test_table(kind: str, inputs: int, outputs: int, rows: int, capsys: pytest.CaptureFixture[str]) -> None:
    layer = outlier_layer(kind, inputs, outputs, rows * inputs, HELD_OUT)

    def say(line: str) -> None:
        with capsys.disabled():
            print(line, flush=True)

    say(f"\n{kind}, {inputs} inputs: signal-to-noise ratio in dB of the output; of weights, of activations alone")
    found = _recipes(layer, say)
    same = equalized(layer, RECIPES["w4a8"])
    best = _weight_only(layer, "", say)
    if same is not layer:
        best = max(best, _weight_only(same, ", equalized", say))
    assert found["w4a8"] > best - WITHIN_DB


def _recipes(layer: OutlierLayer, say: Callable[[str], None]) -> dict[str, float]:
    found = {}
    for name, recipe in RECIPES.items():
        start = perf_counter()
        noise = of_recipe(layer, recipe)
        bits = bits_of_recipe(recipe, layer.weight.shape[1])
        parts = f"{noise.weights:6.2f} {noise.activations:6.2f}"
        say(f"  {name:58} {bits:5.3f} bits {noise.total:6.2f} dB  {parts}  {perf_counter() - start:4.0f} s")
        found[name] = noise.total
    return found


def _weight_only(layer: OutlierLayer, note: str, say: Callable[[str], None]) -> float:
    """The best of Brevitas's recipes."""
    moment, found = second_moment(layer.calibration), []
    for recipe in WEIGHT_ONLY:
        start = perf_counter()
        found.append(of_weight_only(layer, recipe, moment))
        name = f"Brevitas: {recipe.name}{note}"
        say(f"  {name:58} {recipe.bits:5.3f} bits {found[-1]:6.2f} dB {perf_counter() - start:20.0f} s")
    return max(found)
