"""GPTQ chooses better integers than rounding, within the same format."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch

from fastcar.export.quantize import Recipe, activations, quantize_with_report
from fastcar.export.quantize.gptq import TwoLevelGPTQ
from fastcar.export.quantize.network import QuantDecoderLayer, QuantLlama


@torch.no_grad()
def logit_error(network: QuantLlama, llama, clips: torch.Tensor) -> float:
    """Mean squared difference to the float model, of logits up to a constant a position."""
    first = network.layout.code_offset
    expected = llama(clips)[..., first : first + network.layout.codes].log_softmax(-1)
    return (network(clips).log_softmax(-1) - expected).square().mean().item()


def test_better_than_nearest(trained, layout, calibration, heldout):
    error = {}
    for method in ("nearest", "gptq"):
        recipe = Recipe(method, 4, 32, method)
        network = quantize_with_report(trained, layout, recipe, calibration).network
        error[method] = logit_error(network, trained, heldout)
    assert error["gptq"] < 0.85 * error["nearest"]


def test_a_quantized_column_is_that_of_the_whole_matrix(trained, layout):
    layer = QuantDecoderLayer(deepcopy(trained.model.layers[0]), Recipe("x", 4, 32, "gptq")).mlp.down_proj
    whole = layer.quant_weight().value
    gptq = TwoLevelGPTQ(layer, "down", act_order=False, len_parallel_layers=1, create_weight_orig=False, num_blocks=1)
    for column in (0, 31, 32, 95):
        assert torch.equal(gptq._quantized_column(column // 32, column), whole[:, column])


def test_silent_inputs_are_reported(untrained, layout, calibration):
    mlp = untrained.model.layers[1].mlp
    mlp.up_proj.weight[[4, 9]] = 0
    report = quantize_with_report(untrained, layout, Recipe("x", 4, 32, "gptq"), calibration).report
    assert "layers.1.mlp.down_proj: 2 of 96 inputs were never active, their weights are zero" in report.notes
    assert "layers.1.gate_up: 2 of 192 output channels are all zero, their scale is the floor" in report.notes


def test_more_clips_do_not_store_more(trained, layout, calibration, monkeypatch):
    """What GPTQ keeps a layer is one (in, in) matrix, whatever the number of batches."""
    kept = []
    update = TwoLevelGPTQ.single_layer_update

    def measured(self, *args, **kwargs):
        tensors = [value for value in vars(self).values() if isinstance(value, torch.Tensor)]
        kept.append(sum(tensor.numel() for tensor in tensors if tensor.shape[:1] != (0,)))
        return update(self, *args, **kwargs)

    monkeypatch.setattr(TwoLevelGPTQ, "single_layer_update", measured)
    monkeypatch.setattr(activations, "BATCH_POSITIONS", 2 * layout.positions)
    sizes = []
    for clips in (2, 12):
        kept.clear()
        quantize_with_report(trained, layout, Recipe("x", 4, 32, "gptq"), calibration[:clips])
        sizes.append(tuple(kept))
    assert sizes[0] == sizes[1]
    assert max(sizes[0]) <= 2 * 96 * 96 + 96


def test_deterministic(trained, layout, calibration):
    recipe = Recipe("x", 4, 32, "gptq")
    a, b = (quantize_with_report(trained, layout, recipe, calibration[:8]).model for _ in range(2))
    for (_, x), (_, y) in zip(a.linears(), b.linears(), strict=True):
        assert (x.values == y.values).all() and (x.scale == y.scale).all()


@pytest.mark.parametrize("method", ["nearest", "gptq"])
def test_progress_is_told_layer_by_layer(trained, layout, calibration, method):
    seen = []
    quantize_with_report(
        trained, layout, Recipe("x", 4, 32, method), calibration[:4], progress=lambda *call: seen.append(call)
    )
    assert seen == [("quantization", 1, 2), ("quantization", 2, 2)]
