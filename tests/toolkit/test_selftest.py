"""The self-test names the node that is broken, whichever it is, and what else may be wrong with an engine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from breakable_engine import DECISION, GUIDANCE, MEMORY, SCORE, Breakable, build_breakable, engine_of
from car_like import BACKBONE as SHAPE
from car_like import LAYOUT, copy_of, edit_manifest, rehash
from cli_runs import run
from safetensors.numpy import load_file, save_file

from fastcar.export.pipeline import export_model
from fastcar.toolkit.backends.csim import CSimBackend
from fastcar.toolkit.backends.golden_nodes import NodeVectors
from fastcar.toolkit.bundle.bundle import BACKBONE, GOLDEN, GOLDEN_NODES, MANIFEST, Bundle
from fastcar.toolkit.errors import BundleError, DeviceError
from fastcar.toolkit.program.descriptors import Opcode
from fastcar.toolkit.selftest import SelfTestReport, self_test


@pytest.fixture(scope="module")
def bundle(bundle_w8a8: Path) -> Bundle:
    return Bundle.open(bundle_w8a8)


@pytest.fixture(scope="module")
def packed_bundle(car_like: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packed") / "kv260"
    return export_model(car_like, folder, recipe="w8a8", board="kv260", evaluate=False).path


@pytest.fixture(scope="module")
def breakable(bundle: Bundle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Breakable]:
    yield Breakable(build_breakable(tmp_path_factory.mktemp("mutant")), bundle)


def failed(report: SelfTestReport) -> list[str]:
    return [check.name for check in report.checks if not check.passed]


@pytest.mark.parametrize("recipe", ["bundle_w8a8", "bundle_w4a8"])
def test_an_engine_that_is_right(recipe: str, request: pytest.FixtureRequest) -> None:
    made = Bundle.open(request.getfixturevalue(recipe))
    stages = []
    report = self_test(engine_of(made), made, lambda *stage: stages.append(stage))
    assert report.passed and report.failure is None and report.first is None
    assert report.positions == [0, LAYOUT.prompt_length - 1, LAYOUT.prompt_length + 2 * LAYOUT.tokens_per_frame - 2]
    assert len(report.checks) == 4 and all(node.equal for node in report.nodes)
    assert [stage for stage in stages if stage[1] == stage[2]] == [("nodes", 3, 3), ("golden clip", 3, 3)]


NODES = {
    Opcode.NORM_ATTENTION: "RMSNorm.scale",
    Opcode.LINEAR_QKV: "qkv",
    Opcode.HEADS: "RotaryEmbedding.k",
    SCORE: "TemporalAttentionScore",
    DECISION: "ReplayDecision",
    Opcode.ATTENTION: "Attention.values",
    Opcode.LINEAR_OUTPUT: "output",
    Opcode.NORM_MLP: "ReplayMLP.norm.scale",
    Opcode.LINEAR_GATE_UP: "ReplayMLP.hidden.values",
    Opcode.LINEAR_DOWN: "ReplayMLP",
}
OUTSIDE = {
    Opcode.EMBED: "embedding",
    Opcode.NORM_FINAL: "final.RMSNorm.scale",
    Opcode.LINEAR_LOGITS: "head",
    GUIDANCE: "logits",
    Opcode.SAMPLE: "sample",
}
BROKEN = [(node, layer, f"layers.{layer}.{name}") for node, name in NODES.items() for layer in (0, 1)]
BROKEN += [(node, 0, name) for node, name in OUTSIDE.items()]


@pytest.mark.parametrize(("node", "layer", "name"), [case for case in BROKEN if case[:2] != (DECISION, 0)])
def test_the_broken_node_is_named(breakable: Breakable, node: int, layer: int, name: str) -> None:
    """Every opcode, and every node that an opcode hides, in each layer. (The first one never replays.)"""
    report = breakable.report(node, layer)
    assert report.first.node == name and report.first.layer == (None if node in OUTSIDE else layer)
    assert failed(report)[0] == "every node as the reference" and not report.passed
    assert f", {name}, " in report.failure and "; expected " in report.failure
    assert not next(result for result in report.nodes if result.node == name).equal


def test_with_the_switch_off_it_is_whole(breakable: Breakable) -> None:
    assert breakable.report(0, 0).passed


def test_row_and_index_are_told(breakable: Breakable) -> None:
    first = breakable.report(Opcode.LINEAR_QKV, 1).first
    width = (SHAPE.heads + 2 * SHAPE.kv_heads) * SHAPE.head_dim
    assert (first.position, first.index) == (0, (0, width - 1))
    assert str(first).startswith(f"position 0, layers.1.qkv, row 0, index {width - 1}: ")
    assert str(breakable.report(Opcode.SAMPLE, 0).first).split(",")[2].startswith(" clip 0:")


def test_a_run_that_depends_on_memory(breakable: Breakable) -> None:
    """Slots never written, which count where they are not zero: only garbage shows it."""
    reports = [breakable.report(MEMORY, layer) for layer in (0, 1)]
    assert [failed(report) for report in reports] == [["memory may hold anything before a run"]] * 2
    assert "a run depends on what memory held before: " in reports[0].failure


class Flaky(CSimBackend):
    """Right but for the second golden clip."""

    clips = 0

    def decode(self, *given: np.ndarray):
        record = super().decode(*given)
        Flaky.clips += 1
        if Flaky.clips == 2:
            record.logits[3, 0, 5] += 1
        return record


def test_a_run_that_is_not_repeatable(bundle: Bundle) -> None:
    report = self_test(engine_of(bundle, kind=Flaky), bundle)
    assert failed(report) == ["two runs are equal"]
    assert "differs from the first time: logits" in report.failure and "at step 3, clip 0, code 5" in report.failure


def test_memory_is_looked_at_first(bundle: Bundle) -> None:
    backend = engine_of(bundle)
    backend.verify_memory = lambda: None
    assert self_test(backend, bundle).checks[0].name == "memory holds the bundle"

    def faulty() -> None:
        raise DeviceError("weights.bin in the device's memory", "sha256 1", "2", "Test the memory.")

    backend.verify_memory = faulty
    with pytest.raises(DeviceError, match="in the device's memory"):
        self_test(backend, bundle)


def test_nodes_bear_the_names_of_the_graph(bundle: Bundle) -> None:
    vectors = NodeVectors.read(bundle.path / GOLDEN_NODES, SHAPE, LAYOUT)
    graph = {node.name for node in onnx.load(bundle.path / BACKBONE, load_external_data=False).graph.node}
    parts = {"values", "scale", "q", "k", "v", "norm", "hidden"}
    names = {".".join(part for part in name.split(".") if part not in parts) for name in vectors.expected[0]}
    assert names - graph == {"embedding", "logits"}
    calls = {name for name in graph if name.startswith("layers.") or name in ("final.RMSNorm", "head", "sample")}
    assert calls - names == {f"layers.{layer}.QuantizeRows" for layer in range(SHAPE.layers)}


def test_steps_exercise_what_there_is(bundle: Bundle) -> None:
    vectors = NodeVectors.read(bundle.path / GOLDEN_NODES, SHAPE, LAYOUT)
    first, prompt, later = vectors.expected.values()
    replays = [[step[f"layers.{layer}.ReplayDecision"].tolist() for layer in (0, 1)] for step in (first, prompt, later)]
    never = [[False, False], [False, False]]
    assert replays == [never, never, [[False, False], [True, True]]]
    assert not first["layers.0.TemporalAttentionScore"].any() and later["layers.0.TemporalAttentionScore"].any()
    assert not later["layers.1.ReplayMLP.hidden.values"].any() and later["layers.0.ReplayMLP.hidden.values"].any()
    size = (bundle.path / GOLDEN_NODES).stat().st_size
    step = sum(array.nbytes for array in first.values())
    assert 3 * step < size < 3 * step + 20_000


def test_command(packed_bundle: Path) -> None:
    outcome = run("selftest", packed_bundle, "--json")
    assert outcome.code == 0, outcome.stderr
    result = json.loads(outcome.stdout)
    assert result["passed"] and result["first_difference"] is None and len(result["checks"]) == 4
    assert (result["backend"], result["engine"]) == ("csim", "kv260")
    assert all(node["equal"] and node["values"] and not node["differing"] for node in result["nodes"])
    text = run("selftest", packed_bundle)
    assert text.code == 0 and "Attention.values" in text.stdout and "DIFFERS" not in text.stdout


def altered(packed_bundle: Path, folder: Path, file: str, **changes: tuple) -> Path:
    """A forged copy: ``name=(index, change)``, with dots as in the file and its hash in the manifest."""
    copy = copy_of(packed_bundle, folder / "copy")
    tensors = load_file(copy / file)
    for name, (index, change) in changes.items():
        tensors[name][index] = tensors[name][index] + change
    save_file(tensors, copy / file)
    rehash(copy, file)
    return copy


def test_command_names_the_node(packed_bundle: Path, tmp_path: Path) -> None:
    wrong = {"3.layers.1.output": ((1, 7), 1), "0.head": ((0, 2), 1), "3.layers.1.RotaryEmbedding.q": ((0, 3, 2), 1)}
    outcome = run("selftest", altered(packed_bundle, tmp_path, GOLDEN_NODES, **wrong))
    assert outcome.code == 1
    assert outcome.error.startswith("differs: every node as the reference: position 0, head, row 0, index 2: ")
    lines = {words[1]: " ".join(words[2:]) for words in map(str.split, outcome.stdout.splitlines()) if len(words) > 2}
    assert "DIFFERS in layer 1" in lines["RotaryEmbedding.q"] and "DIFFERS in layer 1" in lines["output"]
    assert "equal" in lines["RotaryEmbedding.k"]


def test_command_on_an_altered_clip(packed_bundle: Path, tmp_path: Path) -> None:
    copy = altered(packed_bundle, tmp_path, GOLDEN, scores=((9, 1, 0), 1))
    outcome = run("selftest", copy, "--json")
    assert outcome.code == 1 and json.loads(outcome.stdout)["passed"] is False
    assert "differs: the golden clip as the reference: scores" in outcome.error
    assert "at step 9, layer 1, row 0; expected" in outcome.error


def test_bundles_without_what_is_needed(packed_bundle: Path, bundle_w8a8: Path, tmp_path: Path) -> None:
    old = copy_of(packed_bundle, tmp_path / "old")
    (old / GOLDEN_NODES).unlink()
    files = json.loads((old / MANIFEST).read_text())["files"]
    edit_manifest(old, files={name: entry for name, entry in files.items() if name != GOLDEN_NODES})
    outcome = run("selftest", old)
    assert outcome.code == 2 and "nodes.safetensors: missing; expected values of the nodes" in outcome.error
    assert "Export again." in outcome.error
    outcome = run("selftest", bundle_w8a8)
    assert outcome.code == 2 and "not packed for an overlay" in outcome.error
    outcome = run("selftest", packed_bundle, "--backend", "reference")
    assert outcome.code == 2 and "--backend: reference; expected a back end that runs the engine" in outcome.error


def test_node_vectors_of_another_version(packed_bundle: Path, tmp_path: Path) -> None:
    copy = copy_of(packed_bundle, tmp_path / "copy")
    tensors = load_file(copy / GOLDEN_NODES)
    del tensors["0.layers.1.qkv"]
    save_file(tensors, copy / GOLDEN_NODES)
    with pytest.raises(BundleError, match=r"no 0\.layers\.1\.qkv; expected values of the nodes"):
        NodeVectors.read(copy / GOLDEN_NODES, SHAPE, LAYOUT)
