"""The depth transformer's integers against the float modules they are made of."""

from __future__ import annotations

import weakref
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch
from random_models import CODES, config, depth_config, random_model

from fastcar.export.depth import CodeEmbedding, DepthTransformer
from fastcar.export.quantize.depth import check_depth, quantize_depth
from fastcar.export.quantize.recipes import Recipe
from fastcar.toolkit.config import DepthConfig
from fastcar.toolkit.errors import CheckpointError, UsageError
from fastcar.toolkit.numerics.depth import predict_codes, project_codes
from fastcar.toolkit.numerics.norm import rms_norm
from fastcar.toolkit.numerics.weights import DepthWeights

SHAPE = depth_config(hidden=64, heads=4, mlp=128, codes_per_position=4, code_dim=24, layers=3)
W8, W4 = Recipe("w8", 8), Recipe("w4", 4, 16)
POSITIONS = 600


def float_depth(shape: DepthConfig = SHAPE, seed: int = 0) -> tuple[DepthTransformer, CodeEmbedding]:
    """Every parameter random, the norms' and biases too, of the size that trained ones have."""
    torch.manual_seed(seed)
    depth, embedding = (kind(shape, CODES, config().hidden) for kind in (DepthTransformer, CodeEmbedding))
    for name, value in (*depth.named_parameters(), *embedding.named_parameters()):
        if "ln" in name or "layer_norm" in name:
            value.data = torch.randn_like(value) * 0.2 + (1 if name.endswith("weight") else 0)
        elif name.endswith("bias") or "pos_emb" in name:
            value.data = torch.randn_like(value) * 0.3
        elif "codebooks" not in name:
            value.data = torch.randn_like(value) * 1.5 / value.shape[-1] ** 0.5
    return depth, embedding


def calibration(shape: DepthConfig = SHAPE) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    hidden = torch.randn(POSITIONS, config().hidden, generator=generator)
    return hidden, torch.randint(0, CODES, (POSITIONS, shape.codes_per_position), generator=generator)


def integer_logits(weights: DepthWeights, hidden: np.ndarray, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Teacher-forced logits, and the normed hidden states that they are of."""
    model = random_model(shape=config(vocab=7))
    model = replace(model, head=None, depth=weights)
    first = np.arange(len(hidden))
    inputs = {"uniform": np.zeros(codes.shape, np.int64), "given": codes, "conditional": first, "unconditional": first}
    inputs |= {"guidance": np.float32(1), "inverse_temperature": np.float32(1), "top_k": 1, "top_p": 65536}
    normed = rms_norm(hidden, model.final_gain, model.config.norm_eps)
    return predict_codes(model, hidden, inputs)["logits"], normed.values * normed.scale


def divergence(expected: torch.Tensor, found: torch.Tensor) -> float:
    """Mean Kullback-Leibler divergence in nats."""
    p, q = expected.log_softmax(-1), found.log_softmax(-1)
    return float((p.exp() * (p - q)).sum(-1).mean())


@pytest.mark.parametrize(("recipe", "cosine", "nats"), [(W8, 0.999, 2e-3), (W4, 0.97, 0.1)], ids=["8 bit", "4 bit"])
def test_logits_are_close_to_those_of_the_float_model(recipe, cosine, nats):
    depth, embedding = float_depth()
    weights = quantize_depth(deepcopy(depth), embedding, recipe, *calibration()).weights
    rng = np.random.default_rng(3)
    hidden, codes = rng.normal(0, 1, (50, config().hidden)).astype(np.float32), rng.integers(0, CODES, (50, 4))
    found, normed = integer_logits(weights, hidden, codes)
    with torch.no_grad():
        expected = depth(torch.from_numpy(normed), embedding.cumulative(torch.from_numpy(codes)))
    found = torch.from_numpy(found)
    assert expected.std() > 0.5
    assert torch.cosine_similarity(found.flatten(1), expected.flatten(1)).min() > cosine
    assert divergence(expected, found) < nats < divergence(expected, expected.roll(1, 0))


@pytest.mark.parametrize("shape", [SHAPE, depth_config(shared_codebook=True, projector_layers=1)])
def test_the_projected_codes_are_close_to_those_of_the_float_model(shape):
    depth, embedding = float_depth(shape)
    weights = quantize_depth(deepcopy(depth), embedding, W8, *calibration(shape)).weights
    codes = np.random.default_rng(4).integers(0, CODES, (30, shape.codes_per_position))
    with torch.no_grad():
        expected = embedding(torch.from_numpy(codes)).numpy()
    np.testing.assert_allclose(project_codes(weights, codes), expected, atol=0.02 * np.abs(expected).max())


def test_weights_are_the_nearest_integers_and_the_rest_is_kept():
    depth, embedding = float_depth()
    weights = quantize_depth(deepcopy(depth), embedding, W8, *calibration()).weights
    attention = depth.head_transformer.blocks[1].attn
    rows = torch.cat([attention.query.weight, attention.key.weight, attention.value.weight]).detach().numpy()
    scale = np.abs(rows).max(axis=1) / np.float32(127)
    np.testing.assert_allclose(weights.blocks[1].qkv.scale, scale, rtol=1e-6)
    np.testing.assert_array_equal(weights.blocks[1].qkv.values.T, np.round(rows / scale[:, None]))
    biases = [layer.bias.detach().numpy() for layer in (attention.query, attention.key, attention.value)]
    np.testing.assert_array_equal(weights.blocks[1].qkv.bias, np.concatenate(biases))
    np.testing.assert_array_equal(weights.pos_emb, depth.pos_emb_d[0].detach().numpy())
    books = np.stack([book.weight.detach().numpy() for book in embedding.codebooks])
    np.testing.assert_array_equal(weights.codebook, books.astype(np.float16))
    assert len(weights.projector) == 2 and weights.projector[1].values.shape == (48, 48)


def test_head_scales_reach_just_the_largest_values_of_calibration():
    depth, embedding = float_depth()
    hidden, codes = calibration()
    weights = quantize_depth(deepcopy(depth), embedding, W8, hidden, codes).weights
    with torch.no_grad():
        x = torch.cat((depth.in_mlp_2(hidden)[:, None], depth.in_mlp_1(embedding.cumulative(codes)[:, :-1])), 1)
        x = depth.head_transformer.blocks[0].ln1(x + depth.pos_emb_d)
        attention = depth.head_transformer.blocks[0].attn
        for scale, layer in zip(
            (weights.blocks[0].q_scale, weights.blocks[0].k_scale, weights.blocks[0].v_scale),
            (attention.query, attention.key, attention.value),
            strict=True,
        ):
            peak = layer(x).reshape(POSITIONS * 4, 4, 16).abs().amax(dim=(0, 2))
            np.testing.assert_allclose(127 * scale, peak.numpy(), rtol=1e-5)


def test_bits_by_the_recipe():
    depth, embedding = float_depth()
    quantized = quantize_depth(deepcopy(depth), embedding, replace(W4, method="gptq"), *calibration())
    four = {name for name, linear in quantized.weights.linears() if linear.bit_width == 4}
    assert four == {f"depth.blocks.{i}.{part}" for i in range(3) for part in ("qkv", "output", "fc1", "fc2")}
    assert all(linear.group_size == 16 for name, linear in quantized.weights.linears() if name in four)
    assert all(linear.bias is not None for _, linear in quantized.weights.linears())
    assert quantized.notes == ["depth: rounded to nearest, gptq is for the backbone"]


def test_silence_is_noted():
    depth, embedding = float_depth()
    key = depth.head_transformer.blocks[2].attn.key
    key.weight.data[16:32], key.bias.data[16:32] = 0, 0
    notes = quantize_depth(deepcopy(depth), embedding, W8, *calibration()).notes
    assert len(notes) == 2 and "depth.blocks.2.qkv: 16 of 192 output channels are all zero" in notes[0]
    assert notes[1] == "depth.blocks.2: key of heads 1 was zero in calibration, its scale is 1/127"


def test_blocks_are_let_go_and_the_embedding_is_left_as_it_was():
    depth, embedding = float_depth()
    before = {name: value.clone() for name, value in embedding.state_dict().items()}
    blocks = [weakref.ref(block) for block in depth.head_transformer.blocks]
    quantize_depth(depth, embedding, W4, *calibration())
    assert all(torch.equal(value, before[name]) for name, value in embedding.state_dict().items())
    assert [block() for block in blocks] == [None] * SHAPE.layers


def test_what_cannot_be_quantized_is_refused():
    depth, embedding = float_depth()
    with pytest.raises(UsageError, match=r"group size 48 does not divide the depth transformer's hidden \(64\), mlp"):
        check_depth(depth, embedding, Recipe("w4", 4, 48))
    hidden, codes = calibration()
    for bad in ((hidden[:0], codes[:0]), (hidden, codes[:-1]), (hidden, codes[:, :3])):
        with pytest.raises(ValueError, match="expected"):
            quantize_depth(deepcopy(depth), embedding, W8, *bad)
    embedding.codebooks[2].weight.data[3, 5] = 1e5
    with pytest.raises(CheckpointError, match=r"codes\.codebooks\.2\.weight: 100000\.0 at index \(3, 5\)"):
        check_depth(depth, embedding, W8)
    depth.head_transformer.blocks[1].mlp[2].bias.data[7] = float("nan")
    with pytest.raises(CheckpointError, match=r"depth\.head_transformer\.blocks\.1\.mlp\.2\.bias: nan at index \(7,\)"):
        check_depth(depth, embedding, W8)
