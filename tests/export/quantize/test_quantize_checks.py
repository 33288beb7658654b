"""Bad input is named before any work is done."""

from __future__ import annotations

import pytest
import torch

from fastcar.export.quantize import RECIPES, Recipe, quantize
from fastcar.toolkit.config import FrameLayout
from fastcar.toolkit.errors import CheckpointError, UsageError


def forbid_work(step: str, done: int, total: int) -> None:
    raise AssertionError(f"{step} was run")


def attempt(llama, layout, tokens, recipe=RECIPES["w4a8"]):
    return quantize(llama, layout, recipe, tokens, progress=forbid_work)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_weight_that_is_not_finite(untrained, layout, calibration, value):
    untrained.model.layers[1].mlp.up_proj.weight[3, 5] = value
    with pytest.raises(CheckpointError, match=rf"layers.1.mlp.up_proj.weight: {value} at index \(3, 5\) \(1 such"):
        attempt(untrained, layout, calibration)


def test_embedding_beyond_float16(untrained, layout, calibration):
    untrained.model.embed_tokens.weight[7, 1] = 1e5
    with pytest.raises(CheckpointError, match=r"embed_tokens.weight: 100000.0 at index \(7, 1\)"):
        attempt(untrained, layout, calibration)


def test_every_layer_whose_inputs_a_group_does_not_divide(untrained, layout, calibration):
    with pytest.raises(UsageError) as error:
        attempt(untrained, layout, calibration, Recipe("g48", 4, group_size=48))
    for name in ("layers.0.qkv (64)", "layers.0.output (64)", "layers.1.gate_up (64)"):
        assert name in str(error.value)
    assert "down" not in str(error.value)


def test_codes_beyond_the_vocabulary(untrained, calibration):
    layout = FrameLayout(prompt_length=2, frames=4, grid=(2, 4), code_offset=8, codes=33)
    with pytest.raises(CheckpointError, match=r"codes 8\.\.40"):
        attempt(untrained, layout, calibration)


@pytest.mark.parametrize(
    ("tokens", "found"),
    [
        (torch.zeros(0, 34, dtype=torch.int64), r"shape \(0, 34\)"),
        (torch.zeros(34, dtype=torch.int64), r"shape \(34,\)"),
        (torch.zeros(1, 35, dtype=torch.int64), r"shape \(1, 35\)"),
        (torch.full((1, 34), 40), r"values 40\.\.40"),
        (torch.full((1, 34), -1), r"values -1\.\.-1"),
    ],
)
def test_tokens_that_do_not_fit(untrained, layout, tokens, found):
    with pytest.raises(UsageError, match=found):
        attempt(untrained, layout, tokens)


def test_unknown_tas_query(untrained, layout, calibration):
    with pytest.raises(ValueError, match="mid_rope"):
        quantize(untrained, layout, RECIPES["w8a8"], calibration, tas_query="mid_rope", progress=forbid_work)
