"""Bundles whose replay the cosine of MLP inputs decides: made, shown, run, and refused by what runs engines."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from cli_runs import run
from safetensors.numpy import load_file

from fastcar.boards import load_board
from fastcar.export.overlay.compile import pack_model
from fastcar.export.pipeline import export_model
from fastcar.overlays import load_engine
from fastcar.toolkit.backends.golden import check_golden
from fastcar.toolkit.backends.registry import open_backend
from fastcar.toolkit.board.fit import fit_bundle
from fastcar.toolkit.bundle.bundle import BACKBONE, GOLDEN, GOLDEN_NODES, MANIFEST, Bundle
from fastcar.toolkit.bundle.manifest import Manifest
from fastcar.toolkit.errors import BundleError, UsageError

REFUSED = "replay decided by mlp-input; expected by TAS"


@pytest.fixture(scope="module")
def cosine(car_like: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("cosine") / "bundle"
    outcome = run("export", car_like, "--criterion", "mlp-input", "--out", out)
    assert outcome.code == 0, outcome.stderr
    return out


def test_the_manifest_says_so(cosine: Path, bundle_w8a8: Path):
    made, by_tas = Bundle.open(cosine).manifest, Bundle.open(bundle_w8a8).manifest
    assert (made.criterion, by_tas.criterion) == ("mlp-input", "tas")
    assert made.tas_unit == (2.0**-20,) * made.config.layers and set(by_tas.tas_unit) != {2.0**-20}
    assert made.files[BACKBONE] != by_tas.files[BACKBONE] and GOLDEN_NODES not in made.files
    assert Bundle.open(cosine).model()[0].criterion == "mlp-input"


@pytest.mark.parametrize("backend", ["onnxruntime", "reference"])
def test_the_golden_clip(cosine: Path, backend: str):
    bundle = Bundle.open(cosine)
    assert check_golden(open_backend(backend, bundle), bundle.path / GOLDEN) > 0
    scores = load_file(cosine / GOLDEN)["scores"]
    assert 0 < np.abs(scores).max() <= 1 << 20 and load_file(cosine / GOLDEN)["replay"].any()


def test_older_bundles_are_decided_by_tas(bundle_w8a8: Path, tmp_path: Path):
    stored = json.loads((bundle_w8a8 / MANIFEST).read_text())
    assert stored.pop("criterion") == "tas"
    (tmp_path / MANIFEST).write_text(json.dumps(stored))
    assert Manifest.read(tmp_path / MANIFEST).criterion == "tas"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"criterion": "cos"}, "criterion"),
        ({"criterion": "tas", "tas_unit": [1.0]}, "tas_unit has 1 values"),
        ({"tas_unit": [2.0**-20, 1.0]}, "tas_unit is not that of a cosine"),
        ({"overlay": "kv260"}, "packed for an overlay, whose engine decides by TAS"),
    ],
)
def test_a_manifest_that_contradicts_itself(cosine: Path, tmp_path: Path, changes: dict, words: str):
    stored = json.loads((cosine / MANIFEST).read_text())
    (tmp_path / MANIFEST).write_text(json.dumps(stored | changes))
    with pytest.raises(BundleError, match=re.escape(words)):
        Manifest.read(tmp_path / MANIFEST)


def test_inspect_shows_it(cosine: Path, bundle_w8a8: Path):
    assert json.loads(run("inspect", cosine, "--json").stdout)["criterion"] == "mlp-input"
    text, by_tas = run("inspect", cosine).stdout, run("inspect", bundle_w8a8).stdout
    assert re.search(r"replay by +│ +mlp-input: the cosine", text) and "TAS query" not in text
    assert re.search(r"replay by +│ +TAS ", by_tas) and "post_rope" in by_tas


def test_a_threshold_is_a_cosine(cosine: Path, tmp_path: Path):
    arguments = ("--prompt", "left turn", "--threshold", 0.5, "--compare", "--out", tmp_path)
    outcome = run("generate", cosine, *arguments, "--json")
    assert outcome.code == 0, outcome.stderr
    assert json.loads(outcome.stdout)["criterion"] == "mlp-input"
    stored = load_file(tmp_path / "run.safetensors")
    scored = ~np.isnan(stored["tas"])
    assert 0 < stored["replay"].mean() < 1 and np.nanmax(np.abs(stored["tas"])) <= 1
    np.testing.assert_array_equal(stored["replay"][scored], stored["tas"][scored] > 0.5)
    assert "mlp-input, called TAS here" in (tmp_path / "report.html").read_text()


def test_a_ratio_is_found(cosine: Path, tmp_path: Path):
    arguments = ("--prompt", "slow", "--replay-ratio", 0.5, "--policy", "all", "--json", "--out", tmp_path)
    result = json.loads(run("generate", cosine, *arguments).stdout)
    assert abs(result["summary"]["eligible_replay_ratio"] - 0.5) <= 0.05 and -1 < result["thresholds"][0] < 1


def test_steps_are_profiled(cosine: Path):
    result = run("profile", cosine)
    assert result.code == 0 and "InputSimilarity" in result.stdout and "TemporalAttentionScore" not in result.stdout


def test_four_bits_are_expanded(car_like: Path, tmp_path: Path):
    options = {"recipe": "w4a8-nearest", "criterion": "mlp-input", "evaluate": False}
    export_model(car_like, tmp_path / "narrow", **options)
    assert run("expand", tmp_path / "narrow", "--out", tmp_path / "wide").code == 0
    wide = Bundle.open(tmp_path / "wide")
    assert wide.manifest.criterion == "mlp-input"
    assert check_golden(open_backend("onnxruntime", wide), wide.path / GOLDEN) > 0


CLIP = ("--prompt", "slow", "--frames", 2)


@pytest.mark.parametrize(
    "arguments",
    [
        ("csim", "{}", *CLIP),
        ("selftest", "{}"),
        ("generate", "{}", *CLIP, "--backend", "csim", "--out", "{tmp}/out"),
        ("generate", "{}", *CLIP, "--backend", "pynq", "--device", "emulated", "--out", "{tmp}/out"),
        ("plan", "{}", "--board", "kv260", "--out", "{tmp}/out"),
    ],
    ids=lambda arguments: " ".join(map(str, arguments[::4])),
)
def test_engines_refuse(cosine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple):
    from fastcar.toolkit.cli import csim

    monkeypatch.setattr(csim, "EngineLibrary", lambda *_: pytest.fail("nothing may be compiled"))
    filled = [str(argument).format(cosine, tmp=tmp_path) for argument in arguments]
    outcome = run(*filled)
    assert outcome.code == 2 and REFUSED in outcome.stderr and "Traceback" not in outcome.stderr
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_no_board_takes_it(cosine: Path, bundle_w8a8: Path):
    bundle, board = Bundle.open(cosine), load_board("kv260")
    fit = fit_bundle(bundle, board)
    assert not fit.runs and "replay decided by mlp-input" in fit.reasons[0] and not fit.engines
    assert fit_bundle(Bundle.open(bundle_w8a8), board).runs
    with pytest.raises(UsageError, match="--board: replay decided by mlp-input"):
        pack_model(bundle.model()[0], load_engine("kv260").config)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"board": "kv260"}, "--board: --criterion mlp-input beside it"),
        ({"tas_query": "pre_rope"}, "--tas-query: --criterion mlp-input beside it"),
        ({"criterion": "cos"}, "--criterion: 'cos'; expected tas or mlp-input"),
    ],
)
def test_export_refuses(car_like: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict, words: str):
    from fastcar.export import pipeline

    monkeypatch.setattr(pipeline, "load_model", lambda *_: pytest.fail("no work may start"))
    with pytest.raises(UsageError, match=re.escape(words)):
        export_model(car_like, tmp_path / "out", **({"criterion": "mlp-input"} | options))
    assert not list(tmp_path.iterdir())
