"""Equalization changes ranges and not the function."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch

from fastcar.export.quantize import RECIPES, Equalization, Recipe, quantize_with_report
from fastcar.export.quantize.equalize import ChannelPeaks, equalization_scale, equalize


@pytest.mark.parametrize("options", [Equalization(norm=0.5), Equalization(down=0.7), Equalization(value=0.5)])
def test_the_function_stays(untrained, calibration, options):
    untrained.model.layers[0].input_layernorm.weight[3] = 20.0
    equalized = deepcopy(untrained)
    equalize(equalized, ChannelPeaks(equalized).observe(equalized, calibration.split(8)), options)
    changed = [
        name
        for (name, a), b in zip(untrained.named_parameters(), equalized.parameters(), strict=True)
        if not torch.equal(a, b)
    ]
    assert changed
    expected = untrained(calibration)
    assert (equalized(calibration) - expected).abs().max() < 1e-4 * expected.abs().max()


def test_outlier_channels_come_down(untrained, calibration):
    untrained.model.layers[0].input_layernorm.weight[3] = 20.0
    before = ChannelPeaks(untrained).observe(untrained, calibration.split(8))
    equalize(untrained, before, Equalization(norm=0.5, down=0.5, value=0.5))
    after = ChannelPeaks(untrained).observe(untrained, calibration.split(8))
    for name, peak in before.items():
        spread = peak.max() / peak.median()
        assert after[name].max() / after[name].median() < 1.05 * spread
    name = "model.layers.0.self_attn.q_proj"
    assert after[name].max() / after[name].median() < 0.5 * before[name].max() / before[name].median()


@torch.no_grad()
def test_a_model_with_outlier_channels_is_recovered(trained, layout, calibration, heldout):
    """The same function with a few channels 40 times larger: equalization undoes most of the damage."""
    outlying = deepcopy(trained)
    for layer in outlying.model.layers:
        mlp = layer.mlp
        layer.post_attention_layernorm.weight[[3, 40]] *= 40
        for reader in (mlp.gate_proj, mlp.up_proj):
            reader.weight[:, [3, 40]] /= 40
        mlp.up_proj.weight[[7, 90]] *= 40
        mlp.down_proj.weight[:, [7, 90]] /= 40
    first = layout.code_offset
    expected = trained(heldout)[..., first : first + layout.codes].log_softmax(-1)
    error = {}
    for options in (Equalization(), RECIPES["w8a8"].equalization):
        recipe = Recipe("x", 8, equalization=options)
        logits = quantize_with_report(outlying, layout, recipe, calibration).network(heldout)
        error[options.enabled] = (logits.log_softmax(-1) - expected).square().mean().item()
    assert error[True] < 0.3 * error[False]


def test_peaks_are_running_and_stop(untrained, calibration):
    whole = ChannelPeaks(untrained).observe(untrained, [calibration])
    split = ChannelPeaks(untrained).observe(untrained, calibration.split(5))
    assert whole.keys() == split.keys() and len(whole) == 8
    for name in whole:
        assert torch.allclose(whole[name], split[name], rtol=1e-4)
    kept = {name: peak.clone() for name, peak in split.items()}
    untrained(calibration.flip(0))
    assert all(torch.equal(kept[name], split[name]) for name in kept)


def test_silent_channels_are_left_alone():
    weight = torch.tensor([[1.0, 0.0, 2.0, 4.0]])
    scale = equalization_scale(torch.tensor([0.0, 1.0, 2.0, 8.0]), [weight], 0.5)
    assert scale[:2].tolist() == [1.0, 1.0]
    assert scale[2:].prod().item() == pytest.approx(1.0)
    assert torch.equal(equalization_scale(torch.zeros(4), [weight], 0.5), torch.ones(4))
