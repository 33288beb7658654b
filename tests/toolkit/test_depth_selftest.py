"""The self-test inside a depth transformer: which node, of which layer, at which residual code is broken."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
import random_models
from breakable_engine import ENGINE, GUIDANCE, Breakable, build_breakable, engine_of
from car_like import copy_of, rehash
from cli_runs import run
from depth_bundle import depth_bundle
from random_models import depth_config
from safetensors.numpy import load_file, save_file

from fastcar.toolkit.backends.golden_nodes import NodeVectors, nodes_bytes
from fastcar.toolkit.bundle.bundle import DEPTH, GOLDEN, GOLDEN_NODES, Bundle
from fastcar.toolkit.errors import BundleError
from fastcar.toolkit.program.descriptors import Opcode
from fastcar.toolkit.program.trace import code_of, kind_of
from fastcar.toolkit.selftest import self_test

SHAPE = random_models.config(hidden=48, layers=2, heads=6, kv_heads=2, head_dim=16, mlp=56)
CODES = 3


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    depth = depth_config(hidden=64, heads=4, mlp=80, code_dim=32, codes_per_position=CODES)
    return depth_bundle(tmp_path_factory.mktemp("packed") / "deep", depth, shape=SHAPE, engine=ENGINE)


@pytest.fixture(scope="module")
def breakable(bundle: Bundle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Breakable]:
    yield Breakable(build_breakable(tmp_path_factory.mktemp("mutant")), bundle)


def vectors_of(bundle: Bundle) -> NodeVectors:
    manifest = bundle.manifest
    return NodeVectors.read(bundle.path / GOLDEN_NODES, manifest.config, manifest.frame_layout, manifest.depth)


@pytest.mark.parametrize(("bits", "codes"), [(8, 3), (4, 1), (4, 4)])
def test_an_engine_that_is_right(bits: int, codes: int, tmp_path: Path) -> None:
    shape = random_models.config(hidden=64, heads=4, kv_heads=4, head_dim=32, mlp=96)
    depth = depth_config(hidden=32, heads=2, mlp=64, code_dim=16, codes_per_position=codes, projector_layers=1)
    made = depth_bundle(tmp_path / "b", depth, bits, shape, group=32)
    report, layout = self_test(engine_of(made), made), made.manifest.frame_layout
    assert report.passed and report.first is None and all(node.equal for node in report.nodes)
    assert report.positions == [0, layout.prompt_length - 1, layout.prompt_length + 2 * layout.tokens_per_frame - 2]
    assert {node.code for node in report.nodes} == {None, *range(codes)}
    assert sum(node.values for node in report.nodes if node.kind == "depth.sample") == 3 * codes


NODES = {
    Opcode.DEPTH_NORM_ATTENTION: "LayerNorm.attention.values",
    Opcode.DEPTH_QKV: "qkv",
    Opcode.DEPTH_HEADS: "heads.v",
    Opcode.DEPTH_ATTENTION: "Attention.values",
    Opcode.DEPTH_OUTPUT: "output",
    Opcode.DEPTH_NORM_MLP: "LayerNorm.mlp.values",
    Opcode.DEPTH_FC1: "GELU.values",
    Opcode.DEPTH_FC2: "fc2",
}
OUTSIDE = {
    Opcode.DEPTH_NORM: "LayerNorm.values",
    Opcode.DEPTH_LOGITS: "classifier",
    GUIDANCE: "logits",
    Opcode.DEPTH_SAMPLE: "sample",
}
PLACES = [(0, 0), (1, 0), (1, 2)]  # layer, residual code
BROKEN = [
    (node, *place, f"depth.{place[1]}.blocks.{place[0]}.{name}") for node, name in NODES.items() for place in PLACES
]
BROKEN += [(node, 0, code, f"depth.{code}.{name}") for node, name in OUTSIDE.items() for code in range(CODES)]
BROKEN += [(Opcode.DEPTH_HIDDEN, 0, 0, "depth.0.embedding")]
BROKEN += [(Opcode.DEPTH_CODES, 0, code, f"depth.{code}.embedding") for code in (1, 2)]


@pytest.mark.parametrize(("node", "layer", "code", "name"), BROKEN)
def test_the_broken_node_is_named(breakable: Breakable, node: int, layer: int, code: int, name: str) -> None:
    report = breakable.report(node, layer, code)
    assert report.first.node == name and report.first.code == code
    assert report.first.layer == (layer if node in NODES else None)
    assert f", {name}, " in report.failure and "; expected " in report.failure
    if node in (GUIDANCE, Opcode.DEPTH_SAMPLE):
        assert f"{name}, clip 0" in report.failure
    assert not report.checks[0].passed and not report.passed


@pytest.mark.parametrize(("node", "name"), [(Opcode.EMBED, "embedding"), (Opcode.NORM_FINAL, "final.RMSNorm.scale")])
def test_a_node_of_the_backbone_is_named(breakable: Breakable, node: int, name: str) -> None:
    first = breakable.report(node, 0).first
    assert (first.node, first.code, first.layer, first.position) == (name, None, None, 0)


@pytest.mark.parametrize("layer", [0, 1])
def test_the_projector_is_named(breakable: Breakable, layer: int) -> None:
    """The prompt's positions do not read codes: the last one finds it."""
    first = breakable.report(Opcode.PROJECT, layer).first
    assert (first.node, first.code, first.position) == ("embedding", None, vectors_of(breakable.bundle).positions[-1])


def test_with_the_switch_off_it_is_whole(breakable: Breakable) -> None:
    assert breakable.report(0, 0).passed


def test_nodes_bear_the_names_of_the_graph(bundle: Bundle) -> None:
    """Of the loop over residual codes, where every node stands once; in the engine fc1 goes on to GELU, and heads are
    what QuantizeHeads makes."""
    graph = onnx.load(bundle.path / DEPTH, load_external_data=False).graph
    loop = next(node for node in graph.node if node.op_type == "Loop")
    calls = {node.name.removeprefix("code.") for node in loop.attribute[0].g.node if node.domain == "ai.fastcar"}
    calls = {name.removeprefix("depth.").replace("QuantizeHeads", "heads") for name in calls}
    parts, names = {"values", "scale", "q", "k", "v"}, set()
    for name in vectors_of(bundle).expected[0]:
        if code_of(name) == 2:
            names.add(".".join(part for part in name.removeprefix("depth.2.").split(".") if part not in parts))
    assert names - calls == {"embedding", "logits", "sample"}
    inside = {
        f"blocks.{layer}.{name}" for layer in (0, 1) for name in ("fc1", "QuantizeRows.attention", "QuantizeRows.mlp")
    }
    assert calls - names == inside | {"CodeEmbedding", "QuantizeRows", "Sample", "in_mlp_1"}


def test_steps_exercise_what_there_is(bundle: Bundle) -> None:
    vectors = vectors_of(bundle)
    first, prompt, later = vectors.expected.values()
    replays = [[step[f"layers.{layer}.ReplayDecision"].tolist() for layer in (0, 1)] for step in (first, prompt, later)]
    never = [[False, False], [False, False]]
    assert replays == [never, never, [[False, False], [True, True]]]
    golden = load_file(bundle.path / GOLDEN)
    codes = vectors.given["codes"]
    assert codes.shape == (2, len(golden["codes"]) - 1, CODES)
    assert (codes[0] == golden["codes"][:-1, 0]).all() and (codes[1] == codes[0]).all()
    size, manifest = (bundle.path / GOLDEN_NODES).stat().st_size, bundle.manifest
    stored = nodes_bytes(manifest.config, manifest.frame_layout, manifest.depth)
    assert stored == sum(array.nbytes for step in vectors.expected.values() for array in step.values())
    assert stored < size < stored + 50_000


def altered(bundle: Bundle, folder: Path, **changes: tuple) -> Path:
    copy = copy_of(bundle.path, folder / "copy")
    tensors = load_file(copy / GOLDEN_NODES)
    for name, (index, change) in changes.items():
        tensors[name][index] = tensors[name][index] + change
    save_file(tensors, copy / GOLDEN_NODES)
    rehash(copy, GOLDEN_NODES)
    return copy


def test_command(bundle: Bundle, tmp_path: Path) -> None:
    outcome = run("selftest", bundle.path, "--json")
    assert outcome.code == 0, outcome.stderr
    result = json.loads(outcome.stdout)
    assert result["passed"] and result["first_difference"] is None and len(result["checks"]) == 4
    assert all(node["equal"] and node["values"] for node in result["nodes"])
    deep = [node for node in result["nodes"] if node["node"] == "depth.2.blocks.1.fc2"]
    assert [(node["code"], node["layer"], node["kind"]) for node in deep] == [(2, 1, "depth.fc2")]
    wrong = {
        "0.depth.2.blocks.1.fc2": ((1, 7), 1),
        "0.depth.2.blocks.0.fc2": ((1, 7), 1),
        "2.depth.1.blocks.1.fc2": ((0, 0), 1),
        "2.depth.1.sample": ((0,), 1),
        "0.layers.1.output": ((0, 3), 1),
    }
    outcome = run("selftest", altered(bundle, tmp_path, **wrong))
    assert outcome.code == 1
    assert outcome.error.startswith(
        "differs: every node as the reference: position 0, layers.1.output, row 0, index 3: "
    )
    words = " ".join(outcome.stdout.replace("│", "").split())  # long cells are wrapped
    assert re.search(r" depth\.fc2 [\d,]+ 3 DIFFERS in code 1 layer 1; code 2 layer 0, 1 depth", words), words
    assert re.search(r" depth\.sample [\d,]+ 1 DIFFERS in code 1 ", words)
    assert re.search(r" output [\d,]+ 1 DIFFERS in layer 1 ", words)
    assert re.search(r" depth\.output [\d,]+ 0 equal ", words)


def test_node_vectors_of_another_version(bundle: Bundle, tmp_path: Path) -> None:
    copy = copy_of(bundle.path, tmp_path / "copy")
    stored = load_file(copy / GOLDEN_NODES)
    for name in ("codes", "0.depth.1.classifier"):
        save_file({key: value for key, value in stored.items() if key != name}, copy / GOLDEN_NODES)
        with pytest.raises(BundleError, match=f"no {name}; expected values of the nodes"):
            vectors_of(Bundle(copy, bundle.manifest))
    kinds = {kind_of(name) for name in stored if not name[0].isdigit()}
    assert kinds == {"tokens", "codes", "traced", "uniforms", "thresholds"}
    assert np.array_equal(stored["traced"], vectors_of(bundle).positions)
