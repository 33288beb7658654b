"""Graphs whose replay MLP inputs decide, their functions, and that graphs decided by TAS are as without a choice."""

from __future__ import annotations

from collections import Counter

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from difficult_inputs import difficult_rows, draw8, unsigned
from onnx_functions import assert_function, function_model, session
from random_models import CODES, Lowered, config, random_layer

from fastcar.export.lower.functions import LinearForm, define_functions
from fastcar.export.lower.graph import lower_backbone
from fastcar.toolkit.bundle.tensor_file import stored_tensors
from fastcar.toolkit.numerics.mlp import replay_mlp, replay_normed_mlp
from fastcar.toolkit.numerics.norm import rms_norm
from fastcar.toolkit.numerics.similarity import input_similarity
from fastcar.toolkit.numerics.tables import sigmoid_table

INPUTS = ["tokens", "position", "mask", "slot_before", "eligible", "max_age", "pool", "vote", "threshold", "age"]
INPUTS += ["replay_cache", *(f"{part}_cache.{layer}" for layer in range(3) for part in "kv"), "conditional"]
INPUTS += ["unconditional", "guidance", "uniform", "inverse_temperature", "top_k", "top_p"]
OUTPUTS = ["code", "logits", "k", "v", "mlp_output", "tas", "replay"]
MLP = ["gate_up_weight", "gate_up_scale", "down_weight", "down_scale"]
ORDER = ["RMSNorm", "QuantLinear", "RotaryEmbedding", "TemporalAttentionScore", "ReplayDecision", "Attention"]
ORDER += ["QuantizeRows", "QuantLinear", "ReplayMLP"]


def names(values) -> list[str]:
    return [value.name for value in values]


def calls_of(model: onnx.ModelProto, layer: int) -> list[str]:
    return [n.op_type for n in model.graph.node if n.domain == "ai.fastcar" and n.name.startswith(f"layers.{layer}.")]


def test_a_graph_decided_by_tas_is_the_one_it_was(lowered: Lowered):
    """Inputs, outputs, functions and nodes by name and in order, byte for byte with and without the choice."""
    model, path = lowered(8)
    found = onnx.load(path, load_external_data=False)
    assert names(found.graph.input) == INPUTS and names(found.graph.output) == OUTPUTS
    assert [calls_of(found, layer) for layer in range(3)] == [ORDER] * 3
    functions = {function.name: function for function in found.functions}
    assert set(functions) == {*ORDER, "Sample"}
    assert list(functions["ReplayMLP"].input) == ["x", "replay", "cached", "gain", "sigmoid_table", *MLP]
    operators = [node.op_type for node in functions["ReplayMLP"].node if node.op_type != "Constant"]
    assert operators[:5] == ["Not", "NonZero", "Transpose", "GatherND", "Abs"] and operators[-1] == "Cast"
    stored = stored_tensors(path.parent / "weights.safetensors")
    again = lower_backbone(model.config, model.layout, stored, "weights.safetensors", criterion="tas")
    ir.save(again, path.with_name("again.onnx"))
    assert path.with_name("again.onnx").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("bits", [8, 4])
def test_the_decision_comes_after_attention(lowered: Lowered, bits: int):
    _, path = lowered(bits, criterion="mlp-input")
    onnx.checker.check_model(str(path), full_check=True)
    found = onnx.load(path, load_external_data=False)
    assert Counter(names(found.graph.input)) == Counter({*INPUTS, "mlp_input_cache"} - {"slot_before"})
    assert names(found.graph.output) == [*OUTPUTS, "mlp_input"]
    assert "tas_multiplier" not in " ".join(names(found.graph.initializer))
    quant = "QuantLinear" if bits == 8 else "QuantLinearInt4G4"
    order = ["RMSNorm", quant, "RotaryEmbedding", "Attention", "QuantizeRows", quant, "RMSNorm", "InputSimilarity"]
    assert [calls_of(found, layer) for layer in range(3)] == [[*order, "ReplayDecision", "ReplayMLP"]] * 3
    by_name = {node.name: node for node in found.graph.node}
    norm, score = by_name["layers.1.ReplayMLP.norm"], by_name["layers.1.InputSimilarity"]
    decision, mlp = by_name["layers.1.ReplayDecision"], by_name["layers.1.ReplayMLP"]
    assert score.input[0] == norm.output[0] and decision.input[0] == score.output[0]
    assert list(mlp.input[:3]) == [*norm.output, decision.output[0]]


def test_an_unknown_criterion(lowered: Lowered):
    model, path = lowered(8)
    stored = stored_tensors(path.parent / "weights.safetensors")
    with pytest.raises(ValueError, match="criterion 'cos'; expected one of tas, mlp-input"):
        lower_backbone(model.config, model.layout, stored, "weights.safetensors", criterion="cos")


SHAPES = {"off tile": config(), "larger": config(hidden=1036, mlp=192), "one value": config(hidden=1)}


def function(shape: str, name: str) -> onnx.FunctionProto:
    forms = {part: LinearForm(None) for part in ("qkv", "output", "gate_up", "down", "head")}
    made = define_functions(SHAPES[shape], CODES, forms, pre_rope=False, criterion="mlp-input")
    return ir.serde.serialize_function(made[name])


@pytest.mark.parametrize("rows", [1, 2, 3, 10])
@pytest.mark.parametrize("shape", SHAPES)
def test_input_similarity(shape, rows):
    """Of drawn rows, equal ones, near ones, opposite ones, and zeros on either side."""
    rng, hidden = np.random.default_rng(rows), SHAPES[shape].hidden
    values, before = (np.maximum(draw8(rng, rows, hidden), -127) for _ in range(2))
    near = np.clip(values.astype(np.int16) + rng.integers(-1, 2, values.shape), -127, 127).astype(np.int8)
    for one, other in ((values, before), (values, values), (values, near), (values, -values)):
        for zero in (None, one, other):
            pair = tuple(x.copy() * (x is not zero) for x in (one, other))
            expected = input_similarity(*pair)
            inputs = {"values": unsigned(pair[0]), "before": unsigned(pair[1])}
            assert_function(function(shape, "InputSimilarity"), inputs, {"score": expected})


def mlp_inputs(shape: str, rows: int, replay: np.ndarray):
    rng = np.random.default_rng(rows)
    c, layer = SHAPES[shape], random_layer(rng, SHAPES[shape], {})
    x = difficult_rows(rng, rows, c.hidden) * np.float32(3)
    cached = rng.normal(0, 1, x.shape).astype(ml_dtypes.bfloat16)
    with np.errstate(over="ignore"):
        normed = rms_norm(x, layer.mlp_gain, c.norm_eps)
        used, to_cache = replay_normed_mlp(normed, replay, cached.view(np.uint16), layer)
        other = replay_mlp(x, replay, cached.view(np.uint16), layer, c.norm_eps)
    np.testing.assert_array_equal(to_cache, other[1], "the norm before the decision or after it: the same outputs")
    inputs = {"values": unsigned(normed.values), "scale": normed.scale, "replay": replay, "cached": cached}
    inputs |= {"sigmoid_table": sigmoid_table()}
    for name, linear in (("gate_up", layer.gate_up), ("down", layer.down)):
        inputs |= {f"{name}_weight": unsigned(linear.values), f"{name}_scale": linear.scale}
    return inputs, {"used": used, "to_cache": to_cache.view(ml_dtypes.bfloat16)}


@pytest.mark.parametrize("replayed", [0, 1, 2, 9, 10])
@pytest.mark.parametrize("shape", ["off tile", "larger"])
def test_replay_mlp(shape, replayed):
    for rows in (1, 2, 3, 10):
        replay = np.random.default_rng(replayed).permutation(rows) < replayed
        assert_function(function(shape, "ReplayMLP"), *mlp_inputs(shape, rows, replay))


def test_rows_that_replay_are_not_computed():
    """Both products have as many rows as compute, none if none does."""
    body = function("off tile", "ReplayMLP")
    products = [node.output[0] for node in body.node if node.op_type == "MatMulInteger"]
    assert len(products) == 2
    extra = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.INT32, ["computing", None]) for name in products]
    for replay in ([0, 0, 0], [0, 1, 0], [1, 0, 1], [1, 1, 1]):
        inputs, outputs = mlp_inputs("off tile", 3, np.array(replay, bool))
        model = function_model(body, inputs, {"used": outputs["used"]}, extra, inline=True)
        del inputs["cached"]  # bfloat16, which NumPy cannot hand over; zeros do here
        zeros = onnx.helper.make_tensor("cached", onnx.TensorProto.BFLOAT16, (3, 48), bytes(288), raw=True)
        model.graph.initializer.append(zeros)
        model.graph.input.remove(next(x for x in model.graph.input if x.name == "cached"))
        shapes = [made.shape for made in session(model).run(products, inputs)]
        assert shapes == [(3 - sum(replay), 104), (3 - sum(replay), 48)]
