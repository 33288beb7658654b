"""The step graph as a file: valid, readable by name in any viewer, weights beside it."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import onnx.inliner
import pytest
from onnx import AttributeProto, TensorProto, numpy_helper
from random_models import (
    Run,
    assert_same_bits,
    generate_clip,
    onnx_backend,
    random_model,
    reference_backend,
    save_graph,
)

from fastcar.export.lower.body import DOMAIN, Library
from fastcar.export.lower.functions import LinearForm, define_functions
from fastcar.export.lower.graph import lower_backbone
from fastcar.toolkit.bundle.tensor_file import stored_tensors

CONTROL_FLOW = {"If", "Loop", "Scan", "SequenceMap"}
every_variant = pytest.mark.parametrize(
    ("bits", "tas_query"), [(bits, tas_query) for bits in (8, 4) for tas_query in ("post_rope", "pre_rope")]
)


def read(path) -> onnx.ModelProto:
    return onnx.load(path, load_external_data=False)


@every_variant
def test_checker(lowered, bits, tas_query):
    _, path = lowered(bits, tas_query)
    onnx.checker.check_model(str(path), full_check=True)


@every_variant
def test_functions_hold_standard_operators_only(lowered, bits, tas_query):
    model = read(lowered(bits, tas_query)[1])
    assert model.functions and {function.domain for function in model.functions} == {DOMAIN}
    for function in model.functions:
        assert function.doc_string and [(o.domain, o.version) for o in function.opset_import] == [("", 21)]
        for node in function.node:
            assert node.domain == "" and node.op_type not in CONTROL_FLOW
            assert onnx.defs.has(node.op_type, 21)
            assert not any(a.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS) for a in node.attribute)
    called = {node.op_type for node in model.graph.node if node.domain == DOMAIN}
    assert called == {function.name for function in model.functions}
    assert {node.domain for node in model.graph.node} == {"", DOMAIN}


@every_variant
def test_every_layer_shows_its_nodes_by_name(lowered, bits, tas_query):
    integer_model, path = lowered(bits, tas_query)
    nodes = read(path).graph.node
    names = [node.name for node in nodes]
    assert len(set(names)) == len(names)
    quant_linear = "QuantLinear" if bits == 8 else "QuantLinearInt4G4"
    for layer in range(integer_model.config.layers):
        calls = [node for node in nodes if node.domain == DOMAIN and node.name.startswith(f"layers.{layer}.")]
        linears = {f"layers.{layer}.{part}": quant_linear for part in ("qkv", "output")}
        assert all(linears.get(node.name, node.name.split(".")[2]) == node.op_type for node in calls)
        assert Counter(node.op_type for node in calls) == {
            "RMSNorm": 1,
            quant_linear: 2,
            "RotaryEmbedding": 1,
            "TemporalAttentionScore": 1,
            "ReplayDecision": 1,
            "Attention": 1,
            "QuantizeRows": 1,
            "ReplayMLP": 1,
        }
    assert {"final.RMSNorm", "head", "sample"} <= set(names)


@every_variant
def test_score_and_decision_come_before_the_mlp_and_feed_it(lowered, bits, tas_query):
    nodes = [node for node in read(lowered(bits, tas_query)[1]).graph.node if node.name.startswith("layers.1.")]
    by_type = {node.op_type: node for node in nodes}
    rotary = by_type["RotaryEmbedding"]
    score, decision, mlp = (by_type[name] for name in ("TemporalAttentionScore", "ReplayDecision", "ReplayMLP"))
    assert score.input[0] == rotary.output[3 if tas_query == "pre_rope" else 0] and score.input[1] == "k_cache.1"
    assert decision.input[0] == score.output[0] and mlp.input[1] == decision.output[0]
    assert nodes.index(score) < nodes.index(by_type["Attention"]), "the decision is known before attention is done"


@every_variant
def test_weights_lie_in_one_file_beside_the_graph(lowered, bits, tas_query):
    integer_model, path = lowered(bits, tas_query)
    model, stored = read(path), stored_tensors(path.parent / "weights.safetensors")
    size = (path.parent / "weights.safetensors").stat().st_size
    assert model.graph.initializer
    for tensor in model.graph.initializer:
        assert tensor.data_location == TensorProto.EXTERNAL and not tensor.raw_data
        entry = {item.key: item.value for item in tensor.external_data}
        assert entry["location"] == "weights.safetensors"
        assert int(entry["offset"]) + int(entry["length"]) <= size
        assert (int(entry["offset"]), int(entry["length"])) == (stored[tensor.name].offset, stored[tensor.name].length)
    bodies = [model.graph, *model.functions]
    constants = [a.t for body in bodies for node in body.node for a in node.attribute if a.HasField("t")]
    assert max(len(numpy_helper.to_array(tensor).tobytes()) for tensor in constants) <= 8 * integer_model.layout.codes
    assert path.stat().st_size < 120_000


@pytest.mark.parametrize("bits", [8, 4])
def test_weights_are_those_of_the_model(lowered, bits):
    """4-bit ones two to a byte, and expanding to the matrix of the dot products."""
    integer_model, path = lowered(bits, "post_rope")
    found = {t.name: t for t in onnx.load(path).graph.initializer}
    for name, linear in integer_model.linears():
        tensor = found[f"{name}.weight"]
        values = numpy_helper.to_array(tensor).astype(np.int64)
        if linear.bit_width == 4:
            assert tensor.data_type == TensorProto.INT4 and len(tensor.raw_data) == linear.values.size // 2
            factor = numpy_helper.to_array(found[f"{name}.multiplier"]).astype(np.int64)
            values = values * np.repeat(factor, linear.group_size, axis=0)
        else:
            assert tensor.data_type == TensorProto.UINT8
            values = values - 128
        np.testing.assert_array_equal(values, linear.expanded())
        np.testing.assert_array_equal(numpy_helper.to_array(found[f"{name}.scale"]), linear.scale)


def test_four_bit_files_are_smaller(lowered):
    sizes = {}
    for bits in (8, 4):
        integer_model, path = lowered(bits, "post_rope")
        sizes[bits] = (path.parent / "weights.safetensors").stat().st_size
    weights = sum(linear.values.size for name, linear in integer_model.linears() if name != "head")
    groups = weights // 4
    assert sizes[8] - sizes[4] == pytest.approx(weights / 2 - groups, abs=2000)


@every_variant
def test_inlined_model_gives_the_same_bits(lowered, bits, tas_query):
    integer_model, path = lowered(bits, tas_query)
    inlined = onnx.inliner.inline_local_functions(read(path))
    assert not inlined.functions and {node.domain for node in inlined.graph.node} == {""}
    target = path.with_name("inlined.onnx")
    onnx.save(inlined, target)
    onnx.checker.check_model(str(target), full_check=True)
    run = Run(thresholds=(0,) * integer_model.config.layers)
    expected = generate_clip(reference_backend(integer_model), run)
    for graph in (path, target):
        assert_same_bits(generate_clip(onnx_backend(integer_model, graph), run), expected)


def test_different_group_sizes_become_different_functions(tmp_path):
    groups = {"qkv": 12, "output": 10, "gate_up": 4, "down": 4}
    model = random_model(4, groups=groups)
    names = {function.name for function in read(save_graph(model, tmp_path)).functions}
    assert {"QuantLinearInt4G12", "QuantLinearInt4G10", "QuantLinear"} <= names
    run = Run()
    expected = generate_clip(reference_backend(model), run, frames=2)
    assert_same_bits(generate_clip(onnx_backend(model, tmp_path / "backbone.onnx"), run, frames=2), expected)


@pytest.mark.parametrize("tas_heads", ["max", "min"])
def test_one_head_instead_of_the_mean(lowered, tas_heads):
    """The function alone differs; its description says how."""
    plain, path = (lowered(8, "post_rope", tas_heads=tas)[1] for tas in ("mean", tas_heads))
    functions = [{function.name: function for function in read(graph).functions} for graph in (plain, path)]
    assert {name for name in functions[0] if functions[0][name] != functions[1][name]} == {"TemporalAttentionScore"}
    score = functions[1]["TemporalAttentionScore"]
    assert f"{tas_heads} of all heads" in score.doc_string
    assert f"Reduce{tas_heads.capitalize()}" in {node.op_type for node in score.node}
    onnx.checker.check_model(str(path), full_check=True)


def test_unknown_tas_heads(lowered):
    integer_model, path = lowered(8, "post_rope")
    stored = stored_tensors(path.parent / "weights.safetensors")
    with pytest.raises(ValueError, match="tas_heads 'median'; expected one of mean, max, min"):
        lower_backbone(integer_model.config, integer_model.layout, stored, "weights.safetensors", tas_heads="median")


def test_unknown_tas_query(lowered):
    integer_model, path = lowered(8, "post_rope")
    stored = stored_tensors(path.parent / "weights.safetensors")
    with pytest.raises(ValueError, match="tas_query 'rope'; expected post_rope or pre_rope"):
        lower_backbone(integer_model.config, integer_model.layout, stored, "weights.safetensors", "rope")


def test_forms_that_cannot_be_lowered(lowered):
    forms = {name: LinearForm(None) for name in ("qkv", "output", "gate_up", "head")} | {"down": LinearForm(4)}
    with pytest.raises(ValueError, match="gate_up and down are stored differently"):
        define_functions(lowered(8, "post_rope")[0].config, 37, forms, pre_rope=False)


def test_library_refuses_a_second_definition():
    library = Library()
    identity = lambda op, x: op("Identity", x)
    library.define("Same", identity, ["x"], ["y"], "x")
    with pytest.raises(ValueError, match="Same is defined already"):
        library.define("Same", identity, ["x"], ["y"], "x")
    with pytest.raises(ValueError, match="emits 1 outputs; expected 2"):
        library.define("Two", identity, ["x"], ["y", "z"], "x")
