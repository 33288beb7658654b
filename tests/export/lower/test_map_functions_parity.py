"""The functions of a VQGAN decoder, run alone by onnxruntime: the bits of their NumPy counterparts."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from difficult_inputs import next_to_ties
from onnx_functions import assert_function, emitted

from fastcar.export.lower import byte_conv as lower_conv
from fastcar.export.lower.group_norm import group_norm as emit_group_norm
from fastcar.export.lower.map_attention import map_attention as emit_map_attention
from fastcar.export.lower.silu import silu_bytes as emit_silu_bytes
from fastcar.toolkit.numerics.byte_conv import ByteConv, ByteMap, conv_bytes, conv_words, map_step
from fastcar.toolkit.numerics.group_norm import GroupNorm, group_norm
from fastcar.toolkit.numerics.map_attention import map_attention, steps_of_score
from fastcar.toolkit.numerics.silu import silu_bytes
from fastcar.toolkit.numerics.tables import ATTENTION_BITS, exp2_table, sigmoid_table

SHAPES = [(1, 1, 1), (6, 3, 5), (32, 1, 7), (64, 6, 4), (12, 40, 33)]
KINDS = ["normal", "ties", "spike", "far from zero", "equal", "zero", "tiny", "large"]


def difficult_map(kind: str, shape: tuple[int, int, int]) -> np.ndarray:
    rng = np.random.default_rng(len(kind))
    x = rng.normal(0, 2, shape).astype(np.float32)
    if kind == "ties":
        return next_to_ties(rng, x.size, 32767).reshape(shape)
    if kind == "spike":
        x[-1, -1, -1] = -400
    if kind == "equal":
        x[:] = -3
    shift = {"far from zero": 90}.get(kind, 0)
    return (x + np.float32(shift)) * np.float32({"zero": 0, "tiny": 1e-15, "large": 1e12}.get(kind, 1))


def random_conv(inputs: int, outputs: int, kernel: int) -> ByteConv:
    rng = np.random.default_rng(kernel)
    weight = rng.integers(-128, 128, (outputs, inputs, kernel, kernel)).astype(np.int8)
    return ByteConv(weight, *rng.uniform(-2, 2, (2, outputs)).astype(np.float32))


def operands(conv: ByteConv) -> dict[str, np.ndarray]:
    unsigned = (conv.weight.astype(np.int16) + 128).astype(np.uint8)
    return {"weight": unsigned, "weight_scale": conv.scale[:, None, None], "bias": conv.bias[:, None, None]}


@pytest.mark.parametrize("groups", [1, 2, 32])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", KINDS)
def test_group_norm(kind: str, shape: tuple[int, int, int], groups: int):
    if shape[0] % groups:
        groups = shape[0]
    x, rng = difficult_map(kind, shape), np.random.default_rng(1)
    norm = GroupNorm(*rng.uniform(-2, 2, (2, shape[0])).astype(np.float32), groups)
    function = emitted("GroupNorm", emit_group_norm, ["x", "gain", "bias", "eps"], ["y"])
    inputs = {"x": x[None], "gain": norm.gain.reshape(groups, -1), "bias": norm.bias.reshape(groups, -1)}
    assert_function(function, inputs | {"eps": np.array(norm.eps, np.float32)}, {"y": group_norm(x, norm)[None]})


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", KINDS)
def test_silu_bytes(kind: str, shape: tuple[int, int, int]):
    x = difficult_map(kind, shape)
    expected = silu_bytes(x)
    function = emitted("SiLUBytes", emit_silu_bytes, ["x", "table"], ["values", "zero_point", "scale"])
    outputs = {"values": expected.values[None], "zero_point": np.array(expected.zero_point, np.uint8)}
    assert_function(function, {"x": x[None], "table": sigmoid_table()}, outputs | {"scale": np.array(expected.scale)})


@pytest.mark.parametrize("kernel", [1, 3, 5])
@pytest.mark.parametrize("shape", SHAPES)
def test_conv_bytes(shape: tuple[int, int, int], kernel: int):
    """Also with the extremes of both bytes, where a product of pairs would saturate."""
    conv, rng = random_conv(shape[0], 5, kernel), np.random.default_rng(0)
    conv.weight[0], conv.weight[1] = 127, -128
    for values, zero_point in ((rng.integers(0, 256, shape), 11), (np.full(shape, 255), 0), (np.zeros(shape), 255)):
        x = ByteMap(values.astype(np.uint8), zero_point, np.float32(0.037))
        emit = partial(lower_conv.conv_bytes, kernel=kernel)
        names = ["values", "zero_point", "scale", "weight", "weight_scale", "bias"]
        inputs = {"values": x.values[None], "zero_point": np.array(zero_point, np.uint8), "scale": np.array(x.scale)}
        expected = {"y": conv_bytes(x, conv)[None]}
        assert_function(emitted("ConvBytes", emit, names, ["y"]), inputs | operands(conv), expected)


@pytest.mark.parametrize("kernel", [1, 3])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", KINDS)
def test_conv_words(kind: str, shape: tuple[int, int, int], kernel: int):
    conv, x = random_conv(shape[0], 5, kernel), difficult_map(kind, shape)

    def emit(op, x, *weights):
        return lower_conv.conv_words(op, *lower_conv.word_bytes(op, x), *weights, kernel=kernel)

    function = emitted("ConvWords", emit, ["x", "weight", "weight_scale", "bias"], ["y"])
    assert_function(function, {"x": x[None]} | operands(conv), {"y": conv_words(x, conv)[None]})


@pytest.mark.parametrize("kind", KINDS)
def test_word_bytes(kind: str):
    """Their integers are what the values are about."""
    x = difficult_map(kind, (6, 3, 5))
    words = np.rint(x / map_step(x)).astype(np.int64) + 32768
    high, low = (part.astype(np.uint8)[None] for part in divmod(words, 256))
    function = emitted("WordBytes", lower_conv.word_bytes, ["x"], ["high", "low", "step"])
    assert_function(function, {"x": x[None]}, {"high": high, "low": low, "step": np.array(map_step(x))})


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", KINDS)
def test_map_attention(kind: str, shape: tuple[int, int, int]):
    q = difficult_map(kind, shape)
    k, v = np.random.default_rng(2).normal(0, 1, (2, *shape)).astype(np.float32)
    high, low = (part.astype(np.uint8) for part in divmod(exp2_table(ATTENTION_BITS), 256))
    names = ["q", "k", "v", "steps_of_score", "table_high", "table_low"]
    inputs = {"q": q[None], "k": k[None], "v": v[None], "steps_of_score": np.array(steps_of_score(shape[0]))}
    function = emitted("MapAttention", emit_map_attention, names, ["y"])
    expected = {"y": map_attention(q, k, v)[None]}
    assert_function(function, inputs | {"table_high": high, "table_low": low}, expected)
