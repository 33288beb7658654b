"""From a checkpoint to a bundle: what is in it, what it reports, and what is refused before any work."""

from __future__ import annotations

import json
import shutil
from collections import namedtuple
from pathlib import Path

import numpy as np
import onnx
import pytest
from car_like import BACKBONE as SHAPE
from car_like import LAYOUT, damaged_checkpoint

import fastcar
from fastcar.export import pipeline
from fastcar.export.pipeline import export_model
from fastcar.toolkit.backends.golden import check_golden
from fastcar.toolkit.backends.registry import open_backend
from fastcar.toolkit.bundle.bundle import BACKBONE, DECODER, GOLDEN, MANIFEST, WEIGHTS, Bundle
from fastcar.toolkit.errors import CheckpointError, OutputError, UsageError
from fastcar.toolkit.numerics.tas import tas_unit

NODES = ("TemporalAttentionScore", "ReplayDecision", "ReplayMLP")


@pytest.fixture(autouse=True)
def no_work(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch):
    """Tests marked so fail if the export gets as far as quantizing."""
    if "refused" in request.node.name:
        monkeypatch.setattr(pipeline, "LayerQuantizer", lambda *_, **__: pytest.fail("no work may start"))


@pytest.mark.parametrize("recipe", ["w8a8", "w4a8"])
def test_the_manifest_says_what_was_made(recipe: str, request: pytest.FixtureRequest):
    bundle = Bundle.open(request.getfixturevalue(f"bundle_{recipe}"))
    manifest = bundle.manifest
    assert (manifest.name, manifest.recipe["name"], manifest.tas_query) == ("car-like", recipe, "post_rope")
    assert (manifest.config, manifest.frame_layout, manifest.frame_rate) == (SHAPE, LAYOUT, 8.0)
    assert manifest.fastcar == fastcar.__version__
    assert manifest.thresholds == (None,) * SHAPE.layers and len(manifest.tas_unit) == SHAPE.layers
    record = manifest.record
    change = 100 * (record["cross_entropy_quantized"] / record["cross_entropy_fp32"] - 1)
    assert record["cross_entropy_change_percent"] == pytest.approx(change)
    assert abs(change) < (1 if recipe == "w8a8" else 8)
    bits = {linear.bit_width for name, linear in bundle.model()[0].linears() if name != "head"}
    assert bits == {8 if recipe == "w8a8" else 4}


@pytest.mark.parametrize("recipe", ["w8a8", "w4a8"])
def test_graphs_pass_the_full_check_and_name_the_nodes_in_every_layer(recipe: str, request: pytest.FixtureRequest):
    folder = request.getfixturevalue(f"bundle_{recipe}")
    for name in (BACKBONE, DECODER):
        onnx.checker.check_model(str(folder / name), full_check=True)
    model = onnx.load(folder / BACKBONE, load_external_data=False)
    for node in NODES:
        found = [call for call in model.graph.node if call.op_type == node and call.domain == "ai.fastcar"]
        assert len(found) == SHAPE.layers, node
        assert node in {function.name for function in model.functions}


def test_the_same_checkpoint_gives_the_same_bundle(car_like: Path, bundle_w8a8: Path, tmp_path: Path):
    again = export_model(car_like, tmp_path / "again", recipe="w8a8", evaluate=False)
    assert again.manifest.files == Bundle.open(bundle_w8a8).manifest.files
    assert again.manifest.record == {"quantization_notes": []}


def test_the_release_compatible_query_is_another_model(car_like: Path, bundle_w8a8: Path, tmp_path: Path):
    made = export_model(car_like, tmp_path / "release", tas_query="pre_rope", evaluate=False)
    assert made.manifest.tas_query == "pre_rope"
    assert made.manifest.files[BACKBONE] != Bundle.open(bundle_w8a8).manifest.files[BACKBONE]
    assert check_golden(open_backend("onnxruntime", made), made.path / GOLDEN) > 0


@pytest.mark.parametrize("tas_heads", ["max", "min"])
def test_the_reduction_of_heads_travels_with_the_bundle(
    car_like: Path, bundle_w8a8: Path, tmp_path: Path, tas_heads: str
):
    made = export_model(car_like, tmp_path / "made", tas_heads=tas_heads, evaluate=False)
    mean = Bundle.open(bundle_w8a8)
    opened = Bundle.open(made.path)
    assert (opened.manifest.tas_heads, opened.model()[0].tas_heads) == (tas_heads, tas_heads)
    assert (mean.manifest.tas_heads, opened.manifest.tas_unit) == ("mean", mean.manifest.tas_unit)
    differ = {name for name in mean.manifest.files if made.manifest.files[name] != mean.manifest.files[name]}
    assert BACKBONE in differ and WEIGHTS not in differ
    assert check_golden(open_backend("onnxruntime", opened), opened.path / GOLDEN) > 0


def test_weights_of_heads_travel_with_the_bundle(car_like: Path, bundle_w8a8: Path, tmp_path: Path):
    """Alike they change nothing; else multipliers, unit and golden values, never the graph."""
    mean, heads = Bundle.open(bundle_w8a8), SHAPE.heads
    file = tmp_path / "weights.json"
    file.write_text(json.dumps([[0.3] * heads] * SHAPE.layers))
    alike = export_model(car_like, tmp_path / "alike", tas_head_weights=file, evaluate=False)
    assert alike.manifest.files == mean.manifest.files and alike.manifest.tas_unit == mean.manifest.tas_unit
    assert alike.manifest.tas_head_weights == ((0.3,) * heads,) * SHAPE.layers

    weights = [[(-1) ** head * (head + layer) / 7 for head in range(heads)] for layer in range(SHAPE.layers)]
    weights[1][0] = 1e-9
    file.write_text(json.dumps(weights))
    made = Bundle.open(export_model(car_like, tmp_path / "made", tas_head_weights=file, evaluate=False).path)
    assert made.manifest.tas_head_weights == tuple(map(tuple, weights))
    assert made.manifest.files[BACKBONE] == mean.manifest.files[BACKBONE]
    for layer, unit, plain in zip(made.model()[0].layers, made.manifest.tas_unit, mean.model()[0].layers, strict=True):
        assert (layer.tas_multiplier[1:2] < 0).all() and np.array_equal(layer.q_scale, plain.q_scale)
        assert unit == tas_unit(layer.tas_scale, heads, SHAPE.head_dim)
    notes = made.manifest.record["quantization_notes"]
    assert notes == ["layers.1: weights in TAS of heads 0 are too small beside the largest to count"]
    assert check_golden(open_backend("onnxruntime", made), made.path / GOLDEN) > 0


def test_only_a_mean_is_weighted(car_like: Path, tmp_path: Path):
    with pytest.raises(UsageError, match="--tas-head-weights: --tas-heads max beside it; expected --tas-heads mean"):
        export_model(car_like, tmp_path / "out", tas_heads="max", tas_head_weights=tmp_path / "weights.json")
    assert not list(tmp_path.iterdir())


def test_progress_counts_up_to_its_end(car_like: Path, tmp_path: Path):
    seen: dict[str, list[tuple[int, int]]] = {}
    export_model(
        car_like,
        tmp_path / "b",
        on_progress=lambda stage, done, total: seen.setdefault(stage, []).append((done, total)),
    )
    assert {"checking weights", "quantization", "golden clip"} <= seen.keys()
    for stage, steps in seen.items():
        done = [step for step, _ in steps]
        assert done == sorted(done) and steps[-1][0] == steps[-1][1], stage


def test_rows_of_zeros_are_exported_and_reported(car_like: Path, tmp_path: Path):
    name = "model.layers.1.mlp.down_proj.weight"
    folder = damaged_checkpoint(car_like, tmp_path / "zeros", "backbone.safetensors", name, (3,), 0.0)
    folder = damaged_checkpoint(
        folder, tmp_path / "more", "backbone.safetensors", "model.layers.0.self_attn.k_proj.weight", (slice(16),), 0.0
    )
    for recipe in ("w8a8", "w4a8"):
        bundle = export_model(folder, tmp_path / recipe, recipe=recipe, evaluate=False)
        notes = bundle.manifest.record["quantization_notes"]
        assert any("layers.1.down" in note and "1 of 32 output channels are all zero" in note for note in notes), notes
        assert any("layers.0" in note and "heads 0" in note for note in notes), notes
        assert fastcar.generate(bundle, "left turn", frames=2).codes.shape == (1, 2, LAYOUT.tokens_per_frame)


def test_a_weight_that_is_not_finite_is_refused(car_like: Path, tmp_path: Path):
    name = "model.layers.0.self_attn.q_proj.weight"
    folder = damaged_checkpoint(car_like, tmp_path / "nan", "backbone.safetensors", name, (4, 2), float("nan"))
    with pytest.raises(CheckpointError, match=rf"{name}\[4, 2\] is nan"):
        export_model(folder, tmp_path / "new" / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["nan"]


def test_unknown_words_are_refused(car_like: Path, tmp_path: Path):
    with pytest.raises(UsageError, match="recipe: 'w2a2'; expected one of w8a8, w4a8"):
        export_model(car_like, tmp_path / "out", recipe="w2a2")
    with pytest.raises(CheckpointError, match="no such folder"):
        export_model(tmp_path / "nowhere", tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_an_unknown_reduction_is_refused(car_like: Path, tmp_path: Path):
    with pytest.raises(UsageError, match="--tas-heads: 'median'; expected one of mean, max, min"):
        export_model(car_like, tmp_path / "out", tas_heads="median")
    assert not list(tmp_path.iterdir())


def test_an_unknown_query_is_refused(car_like: Path, tmp_path: Path):
    with pytest.raises(UsageError, match="--tas-query: 'mid_rope'; expected post_rope or pre_rope"):
        export_model(car_like, tmp_path / "out", tas_query="mid_rope")
    assert not list(tmp_path.iterdir())


def test_a_place_that_cannot_be_written_is_refused(car_like: Path, tmp_path: Path):
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    for out in (tmp_path / "file", tmp_path / "file" / "out", tmp_path / "folder", Path("/proc/out")):
        with pytest.raises(OutputError, match=str(out.parent)):
            export_model(car_like, out)
    assert {path.name for path in tmp_path.rglob("*")} == {"file", "folder"}


def test_a_full_disk_is_refused(car_like: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: namedtuple("usage", "total used free")(1 << 40, 1 << 40, 100))
    with pytest.raises(OutputError, match="MiB free.*Free some space"):
        export_model(car_like, tmp_path / "new" / "out")
    assert not list(tmp_path.iterdir())


def test_an_existing_bundle_is_refused_unless_asked(car_like: Path, bundle_w8a8: Path):
    with pytest.raises(OutputError, match="exists already.*--overwrite"):
        export_model(car_like, bundle_w8a8)


def test_a_failure_in_the_middle_leaves_nothing(car_like: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def fail(*arguments: object) -> None:
        raise MemoryError

    monkeypatch.setattr(pipeline, "write_golden", fail)
    with pytest.raises(MemoryError):
        export_model(car_like, tmp_path / "new" / "out", evaluate=False)
    assert not list(tmp_path.iterdir())


def test_overwrite_replaces_the_bundle(car_like: Path, bundle_w8a8: Path, tmp_path: Path):
    out = Path(shutil.copytree(bundle_w8a8, tmp_path / "out"))
    made = export_model(car_like, out, recipe="w4a8", evaluate=False, overwrite=True)
    made.verify()
    assert made.manifest.recipe["name"] == "w4a8" and (out / MANIFEST).is_file()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
