"""A whole quantization: quality, side effects, what is reported, what the integers compute."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from fastcar.export.quantize import RECIPES, Recipe, cross_entropy, quantize, quantize_with_report
from fastcar.export.quantize.calibrate import fix_head_scales, quantizer_scaling
from fastcar.export.quantize.observe import LayerPeaks
from fastcar.toolkit.numerics.attention import AttentionScales, attention, quantize_heads
from fastcar.toolkit.numerics.linear import linear, quantize_rows
from fastcar.toolkit.numerics.mlp import replay_mlp
from fastcar.toolkit.numerics.norm import rms_norm
from fastcar.toolkit.numerics.rope import rotary_tables, rotate
from fastcar.toolkit.numerics.weights import IntegerModel, LayerWeights


@pytest.fixture(scope="module", params=RECIPES)
def quantized(request, trained, layout, calibration):
    return quantize_with_report(trained, layout, RECIPES[request.param], calibration)


def test_cross_entropy_stays_within_target(quantized, trained, layout, heldout):
    target = {"w8a8": 0.005, "w4a8": 0.02, "w4a8-nearest": 0.03}[quantized.report.recipe]
    reference = cross_entropy(trained, heldout, layout)
    assert abs(cross_entropy(quantized.network, heldout, layout) / reference - 1) < target
    assert reference < 0.9 * math.log(layout.codes)


def test_cross_entropy_of_a_uniform_model_is_the_logarithm(untrained, layout, heldout):
    untrained.lm_head.weight.zero_()
    assert cross_entropy(untrained, heldout, layout) == pytest.approx(math.log(layout.codes), rel=1e-5)
    untrained.lm_head.weight[: layout.code_offset] = 1.0
    assert cross_entropy(untrained, heldout, layout) == pytest.approx(math.log(layout.codes), rel=1e-5)
    with pytest.raises(ValueError, match="expected at least one clip longer than 2"):
        cross_entropy(untrained, heldout[:, :2], layout)


@pytest.mark.parametrize("name", RECIPES)
def test_the_float_model_is_left_as_it_was(trained, layout, calibration, name):
    before = {key: value.clone() for key, value in trained.state_dict().items()}
    flags = [parameter.requires_grad for parameter in trained.parameters()]
    modules, hooks = str(trained), sum(len(module._forward_pre_hooks) for module in trained.modules())
    quantize(trained, layout, RECIPES[name], calibration[:4])
    assert before.keys() == trained.state_dict().keys()
    assert all(torch.equal(before[key], value) for key, value in trained.state_dict().items())
    assert flags == [parameter.requires_grad for parameter in trained.parameters()]
    assert (modules, hooks) == (str(trained), sum(len(module._forward_pre_hooks) for module in trained.modules()))


def test_network_runs_after_quantization_and_is_not_calibrated_further(quantized, heldout):
    scales = [quantizer_scaling(layer.self_attn.q_quant).scale.clone() for layer in quantized.network.layers]
    first, second = quantized.network(heldout[:2]), quantized.network(heldout[:2])
    assert torch.equal(first, second)
    for scale, layer in zip(scales, quantized.network.layers, strict=True):
        assert torch.equal(scale, quantizer_scaling(layer.self_attn.q_quant).scale)


@torch.no_grad()
def test_network_without_rounding_is_the_float_model(trained, layout, heldout):
    """The fake-quantized network differs from the float one by its quantizers only."""
    from brevitas.graph.calibrate import quantization_status_manager

    network = quantize_with_report(trained, layout, Recipe("x", 8), heldout[:1]).network
    expected = trained(heldout[:4])[..., layout.code_offset : layout.code_offset + layout.codes]
    with quantization_status_manager(network, disable_act_quant=True, disable_weight_quant=True, is_training=False):
        got = network(heldout[:4])
    assert (got - expected).abs().max() < 0.02 * expected.abs().max()  # float16 embedding, bfloat16 MLP outputs


@torch.no_grad()
@pytest.mark.parametrize("name", RECIPES)
def test_biases_stay_what_they_are(biased, layout, calibration, heldout, name):
    """In binary32, but for what equalization moves; the logits of the network stay near those of the float model."""
    made = quantize_with_report(biased, layout, RECIPES[name], calibration)
    for layer, weights in zip(biased.model.layers, made.model.layers, strict=True):
        attention_, mlp = layer.self_attn, layer.mlp
        assert np.array_equal(weights.output.bias, attention_.o_proj.bias.numpy())
        assert np.array_equal(weights.down.bias, mlp.down_proj.bias.numpy())
        assert np.array_equal(
            weights.qkv.bias[:96], torch.cat([attention_.q_proj.bias, attention_.k_proj.bias]).numpy()
        )
        assert np.array_equal(weights.gate_up.bias[:96], mlp.gate_proj.bias.numpy())
    assert made.model.head.bias is None
    first = layout.code_offset
    expected = biased(heldout)[..., first : first + layout.codes]
    correlation = np.corrcoef(made.network(heldout).numpy().ravel(), expected.numpy().ravel())[0, 1]
    assert correlation > {8: 0.999, 4: 0.97}[RECIPES[name].weight_bit_width]


def test_zero_channels_and_silent_heads_are_floored_and_reported(untrained, layout, calibration):
    attention_ = untrained.model.layers[0].self_attn
    attention_.k_proj.weight[16:] = 0
    attention_.v_proj.weight[:] = 0
    untrained.model.layers[1].mlp.down_proj.weight[5] = 0
    untrained.lm_head.weight[layout.code_offset + 3] = 0
    result = quantize_with_report(untrained, layout, RECIPES["w8a8"], calibration[:4])
    assert set(result.report.notes) == {
        "layers.0.qkv: 48 of 128 output channels are all zero, their scale is the floor",
        "layers.0: k of heads 1 was zero in calibration, its scale is 1/127",
        "layers.0: v of heads 0, 1 was zero in calibration, its scale is 1/127",
        "layers.1.down: 1 of 64 output channels are all zero, their scale is the floor",
        "head: 1 of 32 output channels are all zero, their scale is the floor",
    }
    for _, weights in result.model.linears():
        assert np.isfinite(weights.scale).all() and weights.scale.min() > 0
    assert torch.isfinite(result.network(calibration[:1])).all()


def test_only_so_many_clips_are_used(trained, layout, calibration):
    recipe = Recipe("x", 8, calibration_clips=3)
    some, all_ = (quantize(trained, layout, recipe, clips).layers[1] for clips in (calibration[:3], calibration))
    assert np.array_equal(some.k_scale, all_.k_scale)


def test_report_counts_packed_bytes(trained, layout, calibration):
    eight = quantize_with_report(trained, layout, RECIPES["w8a8"], calibration[:2]).report
    four = quantize_with_report(trained, layout, RECIPES["w4a8"], calibration[:2]).report
    assert eight.linear_bytes["layers.0.qkv"] == 64 * 128 + 4 * 128
    assert four.linear_bytes["layers.0.qkv"] == 64 * 128 // 2 + 4 * 128 + 2 * 128
    assert four.linear_bytes["head"] == eight.linear_bytes["head"]
    assert four.total_bytes == sum(four.linear_bytes.values()) < 0.75 * eight.total_bytes


def test_unrotated_queries_are_calibrated_when_they_are_scored(trained, layout, calibration):
    quantized = quantize_with_report(trained, layout, RECIPES["w8a8"], calibration[:2], tas_query="pre_rope")
    assert quantized.model.tas_query == "pre_rope"
    attention_, peaks = quantized.network.layers[0].self_attn, LayerPeaks()
    peaks.heads = {"q": torch.tensor([1.0, 2, 3, 4]), "unrotated": torch.tensor([1.0, 4, 3, 2])}
    peaks.heads |= {"k": torch.ones(2), "v": torch.ones(2, 16)}
    rotated, both = (fix_head_scales(attention_, peaks, with_unrotated=flag) for flag in (False, True))
    assert np.allclose(127 * rotated.q_scale, [1, 2, 3, 4], rtol=0.02)
    assert np.allclose(127 * both.q_scale, [1, 4, 3, 4], rtol=0.02)
    assert torch.equal(quantizer_scaling(attention_.q_quant).scale.flatten(), torch.from_numpy(both.q_scale))


def test_reference_arithmetic_computes_what_the_network_computes(quantized, heldout):
    """Every layer in NumPy integers, position by position, against Brevitas; only the tables and ties differ."""
    tokens = heldout[:2]
    with torch.no_grad():
        expected = quantized.network(tokens).numpy()
    got = integer_logits(quantized.model, tokens.numpy())
    error = np.abs(got - expected)
    spread = expected.std()
    assert np.sqrt(np.square(error).mean()) < 0.015 * spread
    assert np.quantile(error, 0.99) < 0.05 * spread
    assert error.max() < 0.5 * spread  # few positions: where a tie falls the other way depends on the processor's torch


def integer_logits(model: IntegerModel, tokens: np.ndarray) -> np.ndarray:
    rows, positions = tokens.shape
    x = model.embedding[tokens].astype(np.float32)
    for layer in model.layers:
        attended = np.stack(list(attend(model, layer, x)), axis=1)
        x = x + attended
        flat = x.reshape(rows * positions, -1)
        silent = np.zeros(flat.shape, np.uint16)
        output, _ = replay_mlp(flat, np.zeros(len(flat), bool), silent, layer, model.config.norm_eps)
        x = x + output.reshape(x.shape)
    flat = rms_norm(x.reshape(rows * positions, -1), model.final_gain, model.config.norm_eps)
    return linear(flat, model.head).reshape(rows, positions, -1)


def attend(model: IntegerModel, layer: LayerWeights, x: np.ndarray):
    """Attention output of each position in turn, (rows, hidden)."""
    config, rows = model.config, len(x)
    inner, kv = config.heads * config.head_dim, config.kv_heads * config.head_dim
    cos, sin = rotary_tables(config, x.shape[1])
    scales = AttentionScales.of(layer.q_scale, layer.k_scale, layer.v_scale, config.head_dim)
    past_k = np.zeros((rows, config.kv_heads, 0, config.head_dim), np.int8)
    past_v = past_k
    for position in range(x.shape[1]):
        qkv = linear(rms_norm(x[:, position], layer.attention_gain, config.norm_eps), layer.qkv)
        q, k, v = (part.reshape(rows, -1, config.head_dim) for part in np.split(qkv, (inner, inner + kv), axis=1))
        turn = np.repeat(cos[position : position + 1], rows, 0), np.repeat(sin[position : position + 1], rows, 0)
        q = quantize_heads(rotate(q, *turn), layer.q_scale)
        k = quantize_heads(rotate(k, *turn), layer.k_scale)
        v = quantize_heads(v, layer.v_scale)
        mask = np.zeros((rows, past_k.shape[2]), np.int32)
        yield linear(quantize_rows(attention(q, k, v, past_k, past_v, mask, scales)), layer.output)
        past_k = np.concatenate([past_k, k[:, :, None]], axis=2)
        past_v = np.concatenate([past_v, v[:, :, None]], axis=2)
