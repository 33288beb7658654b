"""``fastcar csim`` and bundles packed for an overlay, on the checkpoint of random weights."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from cli_runs import run
from safetensors.numpy import load_file

from fastcar.export.pipeline import export_model
from fastcar.toolkit.bundle.bundle import Bundle
from fastcar.toolkit.cli import csim
from fastcar.toolkit.program.packed import Packed

MODES = ["dense", "replay", "replay+drs"]


@pytest.fixture(scope="module")
def packed_bundle(car_like: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packed") / "kv260"
    return export_model(car_like, folder, recipe="w4a8", board="kv260", evaluate=False).path


def csim_json(*arguments: object) -> dict:
    outcome = run("csim", *map(str, arguments), "--json")
    assert outcome.code == 0, outcome.stderr
    return json.loads(outcome.stdout)


@pytest.mark.parametrize(
    "options", [(), ("--threshold", -50), ("--threshold", 0, "--no-drs", "--policy", "all")], ids=str
)
@pytest.mark.parametrize("recipe", ["bundle_w8a8", "bundle_w4a8"])
def test_check(recipe: str, options: tuple, request: pytest.FixtureRequest) -> None:
    bundle = request.getfixturevalue(recipe)
    result = csim_json(bundle, "--prompt", "left turn", "--check", *options)
    assert result["equal_to_onnxruntime"] is True and result["first_difference"] is None
    assert list(result["estimated"]) == MODES
    assert result["counters"]["steps_done"] > 0
    assert (result["replay_ratio"] > 0) == (-50 in options) or 0 in options
    dense, replay, drs = (result["estimated"][mode] for mode in MODES)
    assert drs["bytes_per_step"] <= replay["bytes_per_step"]
    assert drs["cycles_per_step"] <= replay["cycles_per_step"] <= dense["cycles_per_step"]


def test_window_and_output(bundle_w8a8: Path, tmp_path: Path) -> None:
    arguments = (bundle_w8a8, "--prompt", "left turn", "--attention-window", 5, "--attention-columns", 2, "--frames", 3)
    result = csim_json(*arguments, "--check", "--out", tmp_path / "clip")
    assert result["equal_to_onnxruntime"] is True
    assert (tmp_path / "clip/video.mp4").exists()
    outcome = run("generate", *map(str, arguments), "--out", str(tmp_path / "other"))
    assert outcome.code == 0
    runs = [load_file(tmp_path / name / "run.safetensors") for name in ("clip", "other")]
    assert np.array_equal(runs[0]["codes"], runs[1]["codes"])


def test_packed_bundle_generates_through_the_simulation(packed_bundle: Path, tmp_path: Path) -> None:
    bundle = Bundle.open(packed_bundle)
    assert (bundle.manifest.board, bundle.manifest.overlay) == ("kv260", "kv260")
    assert {"program.bin", "weights.bin"} <= set(bundle.manifest.files)
    for backend in ("csim", "onnxruntime"):
        options = ("--prompt", "left turn", "--frames", "2", "--out", str(tmp_path / backend), "--backend", backend)
        outcome = run("generate", str(packed_bundle), *options)
        assert outcome.code == 0, outcome.stderr
    runs = [load_file(tmp_path / name / "run.safetensors") for name in ("csim", "onnxruntime")]
    assert all(
        np.array_equal(runs[0][name], runs[1][name], equal_nan=runs[0][name].dtype.kind == "f")
        for name in set(runs[1]) - {"seconds"}
    )


def test_packed_bundle_for_another_engine_is_packed_again(packed_bundle: Path) -> None:
    result = csim_json(packed_bundle, "--prompt", "left turn", "--frames", 1, "--board", "zcu102", "--check")
    assert result["engine"] == "zcu102" and result["equal_to_onnxruntime"]


def test_a_difference_is_named_and_exits_with_1(bundle_w8a8: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One flipped bit in the weights of layer 1, of q: it shows in what the layer makes of it, and not before."""
    pack = csim._pack

    def damaged(bundle, engine) -> Packed:
        packed = pack(bundle, engine)
        address = int(packed.program[2 + 8][5])  # LINEAR_QKV of layer 1 comes behind its norm
        packed.weights[address + 4 * 40, 3] ^= 64
        return packed

    monkeypatch.setattr(csim, "_pack", damaged)
    outcome = in_process("csim", str(bundle_w8a8), "--prompt", "left turn", "--check", "--frames", "2")
    assert outcome.exit_code == 1
    assert re.search(r"not equal to onnxruntime: frame 0, position \d, layer 1, (Rotary|Replay)", outcome.output)


def in_process(*arguments: str):
    from click.testing import CliRunner

    from fastcar.toolkit.cli.app import cli

    return CliRunner().invoke(cli, arguments)


@pytest.mark.parametrize(
    "options, message",
    [
        (("--board", "nowhere"), "'nowhere' is not known"),
        (("--frames", "99"), "--frames"),
        (("--prompt", "left turn"), "4 rows (2 clips, twice with guidance); expected at most 2"),
        (("--attention-sinks", "3"), "without a window"),
        (("--attention-columns", "3"), "without a window"),
        (("--attention-window", "two"), "--attention-window: 'two'"),
        (("--policy", "some"), "--policy"),
    ],
)
def test_bad_options(bundle_w8a8: Path, options: tuple[str, ...], message: str) -> None:
    outcome = run("csim", str(bundle_w8a8), "--prompt", "left turn", *options)
    assert outcome.code == 2 and message in outcome.error


def test_unpacked_bundle_has_no_simulation_back_end(bundle_w8a8: Path, tmp_path: Path) -> None:
    outcome = run(
        "generate", str(bundle_w8a8), "--prompt", "left turn", "--backend", "csim", "--out", str(tmp_path / "x")
    )
    assert outcome.code == 2 and "not packed for an overlay" in outcome.stderr and "--board" in outcome.stderr


def test_export_for_an_unknown_board_stops_before_work(car_like: Path, tmp_path: Path) -> None:
    outcome = run("export", str(car_like), "--out", str(tmp_path / "b"), "--board", "nowhere")
    assert outcome.code == 2 and "nowhere" in outcome.stderr and not (tmp_path / "b").exists()


@pytest.mark.parametrize("check", [(), ("--check",)], ids=["alone", "check"])
def test_interrupted_runs_keep_what_is_finished(
    bundle_w8a8: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, check: tuple[str, ...]
) -> None:
    decode, calls = csim.CSimBackend.decode, []

    def stopping(self, *arguments):
        calls.append(None)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return decode(self, *arguments)

    monkeypatch.setattr(csim.CSimBackend, "decode", stopping)
    out = tmp_path / "clip"
    arguments = ("csim", str(bundle_w8a8), "--prompt", "left turn", *check, "--json", "--out", str(out))
    outcome = run(*arguments)
    assert outcome.code == 130 and "kept the 2 finished frames" in outcome.stderr
    result = json.loads(outcome.stdout)
    assert result["interrupted"] and result["frames"] == 2 and "equal_to_onnxruntime" not in result
    assert load_file(out / "run.safetensors")["codes"].shape[1] == 2


def test_too_many_rows_for_a_packed_bundle(packed_bundle: Path, tmp_path: Path) -> None:
    prompts = ("--prompt", "left turn", "--prompt", "left turn")
    outcome = run("generate", str(packed_bundle), *prompts, "--backend", "csim", "--out", str(tmp_path / "x"))
    assert outcome.code == 2 and "4 rows (2 clips, twice with guidance); expected at most 2" in outcome.stderr


def test_inspect_names_the_build(packed_bundle: Path, bundle_w8a8: Path) -> None:
    """By which an overlay tells whether the bundle is for it."""
    build = f"{Packed.read(packed_bundle).build_id:08x}"
    assert f"kv260, build {build}" in run("inspect", packed_bundle).stdout
    assert json.loads(run("inspect", packed_bundle, "--json").stdout)["build_id"] == build
    assert json.loads(run("inspect", bundle_w8a8, "--json").stdout)["build_id"] is None
