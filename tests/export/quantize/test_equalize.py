"""Equalization changes ranges and not the function."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch

from fastcar.export.llama import Llama
from fastcar.export.quantize import RECIPES, Equalization, Recipe, quantize_with_report
from fastcar.export.quantize.equalize import equalization_scale, equalize
from fastcar.export.quantize.observe import LayerPeaks


def observed(llama: Llama, clips: torch.Tensor, batch: int = 8) -> list[LayerPeaks]:
    """The peaks of every layer, over clips a few at a time."""
    peaks = [LayerPeaks() for _ in llama.model.layers]
    cos, sin = llama.cos[: clips.shape[1]], llama.sin[: clips.shape[1]]
    for part in clips.split(batch):
        x = llama.model.embed_tokens(part)
        for layer, own in zip(llama.model.layers, peaks, strict=True):
            x = own.run(layer, x, cos, sin)
    return peaks


def equalize_all(llama: Llama, peaks: list[LayerPeaks], options: Equalization) -> None:
    for layer, own in zip(llama.model.layers, peaks, strict=True):
        equalize(layer, own, options)


@pytest.mark.parametrize("options", [Equalization(norm=0.5), Equalization(down=0.7), Equalization(value=0.5)])
def test_the_function_stays(untrained, calibration, options):
    untrained.model.layers[0].input_layernorm.weight[3] = 20.0
    equalized = deepcopy(untrained)
    equalize_all(equalized, observed(equalized, calibration), options)
    changed = [
        name
        for (name, a), b in zip(untrained.named_parameters(), equalized.parameters(), strict=True)
        if not torch.equal(a, b)
    ]
    assert changed
    expected = untrained(calibration)
    assert (equalized(calibration) - expected).abs().max() < 1e-4 * expected.abs().max()


@pytest.mark.parametrize("options", [Equalization(norm=0.5), Equalization(down=0.7), Equalization(value=0.5)])
def test_biases_follow_what_is_folded_into_their_layer(biased, calibration, options):
    """Those of values and of up projections, and no others; a bias left behind would change the function."""
    equalized = deepcopy(biased)
    equalize_all(equalized, observed(equalized, calibration), options)
    changed = {
        name.split(".")[-2]
        for (name, a), b in zip(biased.named_parameters(), equalized.parameters(), strict=True)
        if name.endswith(".bias") and not torch.equal(a, b)
    }
    assert changed == ({"up_proj"} if options.down else {"v_proj"} if options.value else set())
    expected = biased(calibration)
    assert (equalized(calibration) - expected).abs().max() < 1e-4 * expected.abs().max()


def test_outlier_channels_come_down(untrained, calibration):
    untrained.model.layers[0].input_layernorm.weight[3] = 20.0
    before = observed(untrained, calibration)
    equalize_all(untrained, before, Equalization(norm=0.5, down=0.5, value=0.5))
    after = observed(untrained, calibration)
    for old, new in zip(before, after, strict=True):
        for name, peak in old.inputs.items():
            assert new.inputs[name].max() / new.inputs[name].median() < 1.05 * peak.max() / peak.median()
    name = "self_attn.q_proj"
    old, new = before[0].inputs[name], after[0].inputs[name]
    assert new.max() / new.median() < 0.5 * old.max() / old.median()


def test_the_peaks_of_values_follow_their_equalization(untrained, calibration):
    peaks = observed(untrained, calibration)
    before = [own.v.clone() for own in peaks]
    equalize_all(untrained, peaks, Equalization(value=0.5))
    for old, own, new in zip(before, peaks, observed(untrained, calibration), strict=True):
        assert torch.allclose(own.v, new.v, rtol=1e-4) and not torch.allclose(own.v, old, rtol=1e-2)


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


def test_peaks_are_running_maxima_of_what_passes(untrained, calibration):
    whole, split = observed(untrained, calibration, len(calibration)), observed(untrained, calibration, 5)
    for one, other in zip(whole, split, strict=True):
        assert len(one.inputs) == 4 and len(one.heads) == 4
        for name, peak in (one.inputs | one.heads).items():
            assert torch.allclose(peak, (other.inputs | other.heads)[name], rtol=1e-4)
    normed = untrained.model.layers[0].input_layernorm(untrained.model.embed_tokens(calibration))
    assert torch.allclose(whole[0].inputs["self_attn.q_proj"], normed.abs().amax(dim=(0, 1)))
    attention = untrained.model.layers[0].self_attn
    for name, heads in (("v", (2, 16)), ("unrotated", (4, 16)), ("k", (2, 16))):
        projection = {"v": attention.v_proj, "unrotated": attention.q_proj, "k": attention.k_proj}[name]
        peak = projection(normed).abs().amax(dim=(0, 1)).view(heads)
        expected = peak if name == "v" else peak.amax(dim=1)
        if name == "k":  # turned pairs can be longer than either of them, not longer than both
            assert (whole[0].k <= expected * 2**0.5 + 1e-6).all()
        else:
            assert torch.allclose(whole[0].heads[name], expected, rtol=1e-5)
    assert not untrained.model.layers[0].self_attn.q_proj._forward_pre_hooks


def test_silent_channels_are_left_alone():
    weight = torch.tensor([[1.0, 0.0, 2.0, 4.0]])
    scale = equalization_scale(torch.tensor([0.0, 1.0, 2.0, 8.0]), [weight], 0.5)
    assert scale[:2].tolist() == [1.0, 1.0]
    assert scale[2:].prod().item() == pytest.approx(1.0)
    assert torch.equal(equalization_scale(torch.zeros(4), [weight], 0.5), torch.ones(4))
