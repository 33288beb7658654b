"""Every function of a lowered model, run alone by onnxruntime, gives the bits of its NumPy counterpart."""

from __future__ import annotations

from functools import cache

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from difficult_inputs import difficult_rows, draw8, quantized_outputs, unsigned
from onnx_functions import Int4, assert_function, emitted, function_model, session
from random_models import CODES, config, layout, random_layer, random_linear

from fastcar.export.lower.functions import LinearForm, define_functions
from fastcar.toolkit.bundle.tensors import pack_int4
from fastcar.toolkit.config import TAS_HEADS
from fastcar.toolkit.numerics.attention import MASKED, AttentionScales, attention, quantize_heads
from fastcar.toolkit.numerics.linear import QuantizedRows, linear, quantize_rows
from fastcar.toolkit.numerics.mlp import replay_mlp
from fastcar.toolkit.numerics.norm import rms_norm
from fastcar.toolkit.numerics.rope import rotary_tables, rotate
from fastcar.toolkit.numerics.sampling import sample
from fastcar.toolkit.numerics.tables import ATTENTION_BITS, SAMPLE_BITS, exp2_table, sigmoid_table
from fastcar.toolkit.numerics.tas import NEVER, Pooling, replay_decision, temporal_attention_score
from fastcar.toolkit.numerics.weights import LinearWeights

ROWS = (1, 2, 3, 10)
SHAPES = {
    "off tile": config(),
    "group 13": config(hidden=52),
    "one kv head": config(heads=4, kv_heads=1, head_dim=6),
    "no grouping": config(heads=3, kv_heads=3, head_dim=18),
    "full tiles": config(hidden=128, heads=4, kv_heads=2, head_dim=32, mlp=192),
    "biases": config(attention_bias=True, mlp_bias=True),
}
every_shape = pytest.mark.parametrize("shape", SHAPES)
every_rows = pytest.mark.parametrize("rows", ROWS)


def groups_of(shape: str, bits: int) -> dict[str, int]:
    if bits == 8:
        return {}
    group = {"group 13": 13, "full tiles": 32}.get(shape, 4)
    inner = SHAPES[shape].heads * SHAPES[shape].head_dim
    return {"qkv": group, "output": group if inner % group == 0 else 6, "gate_up": group, "down": group}


@cache
def functions(
    shape: str, bits: int = 8, pre_rope: bool = False, tas_heads: str = "mean"
) -> dict[str, onnx.FunctionProto]:
    groups, has_bias = groups_of(shape, bits), SHAPES[shape].has_bias
    names = ("qkv", "output", "gate_up", "down", "head")
    forms = {name: LinearForm(groups.get(name), has_bias(name)) for name in names}
    made = define_functions(SHAPES[shape], CODES, forms, pre_rope=pre_rope, tas_heads=tas_heads)
    return {name: ir.serde.serialize_function(function) for name, function in made.items()}


@every_rows
@every_shape
def test_rms_norm(shape, rows):
    c, rng = SHAPES[shape], np.random.default_rng(rows)
    x, gain = difficult_rows(rng, rows, c.hidden), rng.uniform(-2, 2, c.hidden).astype(np.float32)
    with np.errstate(over="ignore"):
        expected = quantized_outputs(rms_norm(x, gain, c.norm_eps))
    assert_function(functions(shape)["RMSNorm"], {"x": x, "gain": gain}, expected)


@every_rows
@every_shape
def test_quantize_rows(shape, rows):
    x = difficult_rows(np.random.default_rng(rows), rows, SHAPES[shape].mlp)
    assert_function(functions(shape)["QuantizeRows"], {"x": x}, quantized_outputs(quantize_rows(x)))


def weight_inputs(weights: LinearWeights, prefix: str = "") -> dict[str, np.ndarray | Int4]:
    parts: dict[str, np.ndarray | Int4]
    if weights.multiplier is None:
        parts = {"weight": unsigned(weights.values)}
    else:
        parts = {"weight": Int4(pack_int4(weights.values), weights.values.shape), "multiplier": weights.multiplier}
    parts["scale"] = weights.scale
    if weights.bias is not None:
        parts["bias"] = weights.bias
    return {f"{prefix}{name}": part for name, part in parts.items()}


def check_linear(shape: str, bits: int, x: QuantizedRows, weights: LinearWeights) -> None:
    storage, bias = "" if bits == 8 else f"Int4G{weights.group_size}", "" if weights.bias is None else "Bias"
    name = f"QuantLinear{storage}{bias}"
    inputs = {"values": unsigned(x.values), "row_scale": x.scale, **weight_inputs(weights)}
    assert_function(functions(shape, bits)[name], inputs, {"y": linear(x, weights)})


@every_rows
@pytest.mark.parametrize("bits", [8, 4])
@every_shape
def test_quant_linear(shape, bits, rows):
    c, rng = SHAPES[shape], np.random.default_rng(rows)
    weights = random_linear(rng, c.hidden, 3 * c.head_dim + 1, groups_of(shape, bits).get("qkv"), c.has_bias("qkv"))
    values = np.maximum(draw8(rng, rows, c.hidden), -127)
    check_linear(shape, bits, QuantizedRows(values, rng.random((rows, 1)).astype(np.float32)), weights)


@every_rows
@pytest.mark.parametrize("group", [None, 4])
def test_quant_linear_with_a_bias(group, rows):
    rng = np.random.default_rng(rows)
    weights = random_linear(rng, 52, 31, group, bias=True)
    x = QuantizedRows(np.maximum(draw8(rng, rows, 52), -127), rng.random((rows, 1)).astype(np.float32))
    form = LinearForm(group, bias=True)
    emit = lambda op, values, scale, *parts: form.emit(op, values, scale, parts)
    function = emitted(form.function, emit, ["values", "row_scale", *form.parts], ["y"])
    inputs = {"values": unsigned(x.values), "row_scale": x.scale, **weight_inputs(weights), "bias": weights.bias}
    assert_function(function, inputs, {"y": linear(x, weights)})


@pytest.mark.parametrize("signs", [(1, 1), (1, -1), (-1, 1), (-1, -1)])
@pytest.mark.parametrize(("bits", "inputs"), [(8, 2), (8, 129), (8, 2048), (8, 66001), (4, 2052)])
def test_quant_linear_with_the_largest_operands(bits, inputs, signs):
    """Pairs of products that would saturate 16 bits, and sums of unsigned bytes beyond 32 bits."""
    weights = np.full((inputs, 5), signs[0] * (127 if bits == 8 else 7), np.int8)
    multiplier = None if bits == 8 else np.full((inputs // 4, 5), 18, np.uint8)
    x = QuantizedRows(np.full((2, inputs), signs[1] * 127, np.int8), np.ones((2, 1), np.float32))
    check_linear("off tile", bits, x, LinearWeights(weights, np.full(5, 0.1, np.float32), multiplier))


@every_rows
@pytest.mark.parametrize("pre_rope", [False, True])
@every_shape
def test_rotary_embedding(shape, pre_rope, rows):
    c, rng = SHAPES[shape], np.random.default_rng(rows)
    qkv = rng.normal(0, 2, (rows, (c.heads + 2 * c.kv_heads) * c.head_dim)).astype(np.float32)
    qkv[0, ::7] = rng.choice([0.5, 1.5, -2.5, 1e9, -1e9, 127.5, -128.5], qkv[0, ::7].size)  # ties and saturation
    scale = rng.choice([1.0, 0.02, 0.03], c.heads + 2 * c.kv_heads).astype(np.float32)
    by_element = np.repeat(scale, c.head_dim)[3::5]
    qkv[0, 3::5] = (rng.integers(-127, 127, by_element.size) + 0.5) * by_element
    table = rotary_tables(c, 300)
    cos, sin = (t[rng.integers(0, 300, rows)] for t in table)
    heads = qkv.reshape(rows, -1, c.head_dim)
    turned = rotate(heads[:, : c.heads + c.kv_heads], cos, sin)
    q_scale, k_scale, v_scale = np.split(scale, [c.heads, c.heads + c.kv_heads])
    expected = {
        "q": quantize_heads(turned[:, : c.heads], q_scale),
        "k": quantize_heads(turned[:, c.heads :], k_scale),
        "v": quantize_heads(heads[:, c.heads + c.kv_heads :], v_scale),
    }
    if pre_rope:
        expected["q_before_rotation"] = quantize_heads(heads[:, : c.heads], q_scale)
    inputs = {"qkv": qkv, "cos": cos, "sin": sin, "scale": scale}
    function = functions(shape, pre_rope=pre_rope)["RotaryEmbedding"]
    assert_function(function, inputs, {name: unsigned(x) for name, x in expected.items()})


@pytest.mark.parametrize("tas_heads", TAS_HEADS)
@every_rows
@every_shape
def test_temporal_attention_score(shape, rows, tas_heads):
    """Multipliers of either sign, the largest operands too."""
    c, rng = SHAPES[shape], np.random.default_rng(rows)
    q, cache = draw8(rng, rows, c.heads, c.head_dim), draw8(rng, rows, c.kv_heads, 9, c.head_dim)
    q[0], cache[0, :, 8] = -128, -128
    function = functions(shape, tas_heads=tas_heads)["TemporalAttentionScore"]
    for slot in (0, 4, 8):
        multiplier = rng.integers(1, 128, c.heads) * (1 if slot < 8 else rng.choice([-1, 1], c.heads))
        expected = temporal_attention_score(q, cache[:, :, slot], multiplier.astype(np.int32), tas_heads)
        inputs = {"q": unsigned(q), "k_cache": unsigned(cache), "slot_before": np.array(slot), "multiplier": multiplier}
        assert_function(function, inputs, {"score": expected})


@every_rows
@pytest.mark.parametrize("policy", ["independent", "mean", "all"])
def test_replay_decision(policy, rows):
    rng = np.random.default_rng(rows)
    pooling = Pooling.of(policy, rows)
    for threshold in (-NEVER, -2, 0, 3, NEVER):
        score = rng.integers(-4, 5, rows) + threshold
        eligible, age = rng.random(rows) < 0.8, rng.integers(0, 3, rows).astype(np.int32)
        for max_age in (1, 2, np.iinfo(np.int32).max):
            inputs = {
                "score": score,
                "threshold": np.array([threshold]),
                "eligible": eligible,
                "age": age,
                "max_age": np.array(max_age, np.int32),
                "pool": pooling.pool,
                "vote": pooling.vote,
            }
            expected = replay_decision(score, threshold, eligible, age, max_age, pooling)
            assert_function(functions("off tile")["ReplayDecision"], inputs, {"replay": expected})


@pytest.mark.parametrize("slots", [1, 7, 131])
@every_rows
@every_shape
def test_attention(shape, rows, slots):
    c, rng = SHAPES[shape], np.random.default_rng(rows * slots)
    q, k, v = (draw8(rng, rows, heads, c.head_dim) for heads in (c.heads, c.kv_heads, c.kv_heads))
    k_cache, v_cache = draw8(rng, 2, rows, c.kv_heads, slots, c.head_dim)
    mask = np.where(rng.random((rows, slots)) < 0.7, 0, MASKED).astype(np.int32)
    mask[rows // 2] = MASKED
    scale = [rng.uniform(0.002, 0.04, n).astype(np.float32) for n in (c.heads, c.kv_heads, c.kv_heads)]
    scales = AttentionScales.of(*scale, c.head_dim)
    table = exp2_table(ATTENTION_BITS)
    inputs = {
        "q": unsigned(q),
        "k": unsigned(k),
        "v": unsigned(v),
        "k_cache": unsigned(k_cache),
        "v_cache": unsigned(v_cache),
        "mask": mask,
        "exponent": scales.exponent.reshape(c.kv_heads, c.group, 1),
        "v_scale": scales.value.reshape(c.kv_heads, 1, 1),
        "table": table,
        "table_high": (table >> 8).astype(np.uint8),
        "table_low": (table & 255).astype(np.uint8),
    }
    expected = attention(q, k, v, k_cache, v_cache, mask, scales)
    assert_function(functions(shape)["Attention"], inputs, {"y": expected})


def test_attention_over_many_equal_slots():
    """Every weight is the largest, so the sums of weights and of values are as large as they get."""
    c, slots = SHAPES["full tiles"], 5000
    q, k, v = (np.full((1, heads, c.head_dim), 127, np.int8) for heads in (c.heads, c.kv_heads, c.kv_heads))
    cache = np.full((1, c.kv_heads, slots, c.head_dim), 127, np.int8)
    scales = AttentionScales.of(*(np.full(n, 0.02, np.float32) for n in (c.heads, c.kv_heads, c.kv_heads)), c.head_dim)
    table, mask = exp2_table(ATTENTION_BITS), np.zeros((1, slots), np.int32)
    tables = {"table": table, "table_high": (table >> 8).astype(np.uint8), "table_low": (table & 255).astype(np.uint8)}
    parts = {"q": q, "k": k, "v": v, "k_cache": cache, "v_cache": cache}
    inputs = {
        **{name: unsigned(x) for name, x in parts.items()},
        "mask": mask,
        "exponent": scales.exponent.reshape(c.kv_heads, c.group, 1),
        "v_scale": scales.value.reshape(c.kv_heads, 1, 1),
        **tables,
    }
    expected = attention(q, k, v, cache, cache, mask, scales)
    np.testing.assert_allclose(expected, 127 * 0.02, rtol=1e-6)
    assert_function(functions("full tiles")["Attention"], inputs, {"y": expected})


def mlp_inputs(shape: str, bits: int, rows: int, replay: np.ndarray):
    rng = np.random.default_rng(rows)
    layer = random_layer(rng, SHAPES[shape], groups_of(shape, bits))
    x = difficult_rows(rng, rows, SHAPES[shape].hidden) * np.float32(3)
    cached = rng.normal(0, 1, x.shape).astype(ml_dtypes.bfloat16)
    inputs = {"x": x, "replay": replay, "cached": cached, "gain": layer.mlp_gain, "sigmoid_table": sigmoid_table()}
    inputs |= weight_inputs(layer.gate_up, "gate_up_") | weight_inputs(layer.down, "down_")
    with np.errstate(over="ignore"):
        used, to_cache = replay_mlp(x, replay, cached.view(np.uint16), layer, SHAPES[shape].norm_eps)
    return inputs, {"used": used, "to_cache": to_cache.view(ml_dtypes.bfloat16)}


@pytest.mark.parametrize("replayed", [0, 1, 2, 9, 10])
@pytest.mark.parametrize("bits", [8, 4])
@every_shape
def test_replay_mlp(shape, bits, replayed):
    for rows in {1, 2, 3, 10}:
        replay = np.random.default_rng(replayed).permutation(rows) < replayed
        assert_function(functions(shape, bits)["ReplayMLP"], *mlp_inputs(shape, bits, rows, replay))


@pytest.mark.parametrize("bits", [8, 4])
def test_rows_that_replay_are_not_computed(bits):
    """Both products have as many rows as compute, none if none does."""
    function = functions("off tile", bits)["ReplayMLP"]
    products = [node.output[0] for node in function.node if node.op_type == "MatMulInteger"]
    assert len(products) == 2
    extra = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.INT32, ["computing", None]) for name in products]
    for replay in ([0, 0, 0], [0, 1, 0], [1, 0, 1], [1, 1, 1]):
        inputs, outputs = mlp_inputs("off tile", bits, 3, np.array(replay, bool))
        model = function_model(function, inputs, {"used": outputs["used"]}, extra, inline=True)
        del inputs["cached"]  # bfloat16, which NumPy cannot hand over; zeros do here
        zeros = onnx.helper.make_tensor("cached", onnx.TensorProto.BFLOAT16, (3, 48), bytes(288), raw=True)
        model.graph.initializer.append(zeros)
        model.graph.input.remove(next(x for x in model.graph.input if x.name == "cached"))
        given = {name: x for name, x in inputs.items() if not isinstance(x, Int4)}
        shapes = [made.shape for made in session(model).run(products, given)]
        assert shapes == [(3 - sum(replay), 104), (3 - sum(replay), 48)]


@pytest.mark.parametrize("clips", [1, 5])
@pytest.mark.parametrize("spread", [0.0, 1.0, 30.0])
def test_sample(clips, spread):
    rng = np.random.default_rng(clips)
    for top_k in (1, 5, layout().codes, 1 << 40):
        for top_p in (1, 32768, 62915, 65536):
            logits = np.round(rng.normal(0, spread, (clips, CODES)), 1).astype(np.float32)
            uniform = rng.choice([0, (1 << 24) - 1, 1 << 23, 5_000_000], clips)
            inverse = np.array(1 / 0.7, np.float32)
            inputs = {
                "logits": logits,
                "uniform": uniform,
                "inverse_temperature": inverse,
                "top_k": np.array(top_k),
                "top_p": np.array(top_p),
                "table": exp2_table(SAMPLE_BITS),
            }
            expected = sample(logits, uniform, inverse, top_k, top_p)
            assert_function(functions("off tile")["Sample"], inputs, {"code": expected})


def test_every_function_has_a_test():
    tested = {"RMSNorm", "QuantizeRows", "QuantLinear", "RotaryEmbedding", "TemporalAttentionScore", "ReplayDecision"}
    tested |= {"Attention", "ReplayMLP", "Sample", "QuantLinearInt4G4"}
    assert set(functions("off tile", 4)) == tested
