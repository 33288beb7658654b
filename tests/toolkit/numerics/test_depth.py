"""The depth transformer against one that computes all depth positions at once, attention in Python integers."""

from __future__ import annotations

import numpy as np
import pytest
from random_models import CODES, depth_config, random_depth_model

from fastcar.toolkit.numerics.attention import AttentionScales
from fastcar.toolkit.numerics.depth import TEXT, embed_codes, predict_codes, project_codes
from fastcar.toolkit.numerics.gelu import gelu
from fastcar.toolkit.numerics.layer_norm import layer_norm
from fastcar.toolkit.numerics.linear import linear, quantize_rows
from fastcar.toolkit.numerics.norm import rms_norm
from fastcar.toolkit.numerics.sampling import sample
from fastcar.toolkit.numerics.tables import ATTENTION_BITS, exp2_table
from fastcar.toolkit.numerics.weights import DepthBlockWeights, DepthWeights, IntegerModel

SHAPES = {
    "3 codes, 2 projections": depth_config(),
    "1 code": depth_config(codes_per_position=1),
    "4 codes, shared": depth_config(codes_per_position=4, shared_codebook=True, projector_layers=1),
    "odd heads": depth_config(hidden=33, heads=3, mlp=17, layers=3, codes_per_position=2),
}
every_shape = pytest.mark.parametrize("shape", SHAPES)


def model_of(shape: str) -> IntegerModel:
    return random_depth_model(depth=SHAPES[shape])


def inputs_of(clips: int, rows: int, depth: int, given: np.ndarray | None = None, **settings: float) -> dict:
    rng, first = np.random.default_rng(clips), np.arange(clips)
    return {
        "uniform": rng.integers(0, 1 << 24, (clips, depth)),
        "given": np.full((clips, depth), TEXT) if given is None else given,
        "conditional": first,
        "unconditional": first + rows - clips,
        "guidance": np.float32(1.0),
        "inverse_temperature": np.float32(1.0),
        "top_k": CODES,
        "top_p": 65536,
    } | settings


def attend(q: list[int], keys: list[list[int]], values: np.ndarray, exponent: np.float32) -> list[np.float32]:
    """One head of one row: q of the last position, keys and values (positions, head_dim) with it."""
    table = exp2_table(ATTENTION_BITS)
    scores = [sum(a * b for a, b in zip(q, key, strict=True)) for key in keys]
    steps = [min(int(np.float32(max(scores) - score) * exponent), table.size - 1) for score in scores]
    weights = [int(table[step]) for step in steps]
    mixed = [sum(w * int(v) for w, v in zip(weights, column, strict=True)) for column in values.T]
    return [np.float32(x) / np.float32(sum(weights)) for x in mixed]


def block_at_once(weights: DepthWeights, block: DepthBlockWeights, x: np.ndarray) -> np.ndarray:
    """One row's depth positions x (positions, hidden) through a block."""
    config = weights.config
    split = lambda part: part.reshape(len(x), config.heads, config.head_dim)
    normed = layer_norm(x, block.attention_gain, block.attention_bias, config.norm_eps)
    q, k, v = (split(part) for part in np.split(linear(normed, block.qkv), 3, axis=1))
    scales = AttentionScales.of(block.q_scale, block.k_scale, block.v_scale, config.head_dim)
    integers = [
        np.clip(np.round(part / scale[:, None]), -128, 127).astype(int)
        for part, scale in zip((q, k, v), (block.q_scale, block.k_scale, block.v_scale), strict=True)
    ]
    q, k, v = integers
    mixed = np.zeros((len(x), config.heads, config.head_dim), np.float32)
    for position in range(len(x)):
        for head in range(config.heads):
            seen = slice(0, position + 1)
            keys = k[seen, head].tolist()
            out = attend(q[position, head].tolist(), keys, v[seen, head], scales.exponent[head])
            mixed[position, head] = np.array(out) * block.v_scale[head]
    x = x + linear(quantize_rows(mixed.reshape(len(x), -1)), block.output)
    hidden = gelu(linear(layer_norm(x, block.mlp_gain, block.mlp_bias, config.norm_eps), block.fc1))
    return x + linear(quantize_rows(hidden), block.fc2)


def logits_at_once(model: IntegerModel, hidden: np.ndarray, codes: list[int]) -> np.ndarray:
    """hidden (backbone hidden,) of a row, its codes (D,) -> logits (D, codes)."""
    weights = model.depth
    first = linear(rms_norm(hidden[None], model.final_gain, model.config.norm_eps), weights.in_mlp_2)
    rows, total = [first[0]], np.zeros(weights.config.code_dim, np.float32)
    for index, code in enumerate(codes[:-1]):
        book = weights.codebook[0 if weights.config.shared_codebook else index]
        total = total + book[code].astype(np.float32)
        rows.append(linear(quantize_rows(total[None]), weights.in_mlp_1)[0])
    x = np.stack(rows) + weights.pos_emb
    for block in weights.blocks:
        x = block_at_once(weights, block, x)
    normed = layer_norm(x, weights.classifier_gain, weights.classifier_bias, weights.config.norm_eps)
    return linear(normed, weights.classifier)


@every_shape
def test_logits_are_those_of_all_depth_positions_at_once(shape):
    model, depth = model_of(shape), SHAPES[shape].codes_per_position
    rng = np.random.default_rng(7)
    hidden = rng.normal(0, 2, (3, model.config.hidden)).astype(np.float32)
    codes = rng.integers(0, CODES, (3, depth))
    found = predict_codes(model, hidden, inputs_of(3, 3, depth, codes))
    np.testing.assert_array_equal(found["code"], codes)
    for row in range(3):
        expected = logits_at_once(model, hidden[row], codes[row].tolist())
        np.testing.assert_array_equal(found["logits"][row], expected)


@every_shape
def test_both_rows_of_a_clip_go_on_with_the_code_sampled_from_guided_logits(shape):
    model, depth, guidance = model_of(shape), SHAPES[shape].codes_per_position, np.float32(2.5)
    hidden = np.random.default_rng(8).normal(0, 2, (4, model.config.hidden)).astype(np.float32)
    settings = {"guidance": guidance, "inverse_temperature": np.float32(0.8), "top_k": 9, "top_p": 60000}
    inputs = inputs_of(2, 4, depth, **settings)
    found = predict_codes(model, hidden, inputs)
    for clip in range(2):
        codes = found["code"][clip].tolist()
        with_prompt, without = (logits_at_once(model, hidden[row], codes) for row in (clip, clip + 2))
        guided = without + guidance * (with_prompt - without)
        np.testing.assert_array_equal(found["logits"][clip], guided)
        drawn = sample(guided, inputs["uniform"][clip], np.float32(0.8), 9, 60000)
        assert drawn.tolist() == codes


def test_a_given_code_replaces_the_sampled_one():
    model = model_of("3 codes, 2 projections")
    hidden = np.random.default_rng(9).normal(0, 2, (1, model.config.hidden)).astype(np.float32)
    free = predict_codes(model, hidden, inputs_of(1, 1, 3))["code"][0]
    other = (free[1] + 1) % CODES
    forced = predict_codes(model, hidden, inputs_of(1, 1, 3, np.array([[TEXT, other, TEXT]])))
    again = predict_codes(model, hidden, inputs_of(1, 1, 3, np.array([[free[0], other, forced["code"][0, 2]]])))
    assert forced["code"][0, :2].tolist() == [free[0], other]
    np.testing.assert_array_equal(forced["logits"], again["logits"])


def test_embeddings_are_summed_in_the_order_of_the_codes():
    """In binary32, where another order would give 0."""
    codebook = np.zeros((3, 2, 1), np.float16)
    codebook[:, 1, 0] = 2.0**15, -(2.0**15), 2.0**-24
    assert embed_codes(codebook, np.array([[1, 1, 1], [1, 1, 0], [0, 1, 1]])).tolist() == [
        [2.0**-24],
        [0],
        [-(2.0**15)],
    ]
    assert embed_codes(codebook[:1], np.array([[1, 1, 0]])).tolist() == [[2.0**16]]


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_the_projector_has_a_gelu_between_its_layers(layers):
    weights = random_depth_model(depth=depth_config(projector_layers=layers)).depth
    codes = np.array([[3, 1, 2], [0, 36, 5]])
    x = sum(weights.codebook[d, codes[:, d]].astype(np.float32) for d in range(3))
    for index in range(layers):
        x = linear(quantize_rows(gelu(x) if index else x), weights.projector[index])
    np.testing.assert_array_equal(project_codes(weights, codes), x)
