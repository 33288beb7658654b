"""A tiny sweep against runs and metrics called directly; resumed, interrupted, killed."""

from __future__ import annotations

import csv
import json
import math
import multiprocessing
import os
import signal
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import polars
import pytest
from car_like import LAYOUT, copy_of, edit_manifest
from cli_runs import run as fastcar_run
from tiny_sweep import Here, same_results

from fastcar.export.overlay.program import ProgramPlan, int4_linears
from fastcar.hls.counting import ANY_ENGINE
from fastcar.toolkit.backends.registry import open_backend
from fastcar.toolkit.bundle.bundle import Bundle
from fastcar.toolkit.cli.clip import view_of
from fastcar.toolkit.cli.prompt_file import prompt_lines
from fastcar.toolkit.cli.sweep import _missed
from fastcar.toolkit.errors import OutputError, UsageError
from fastcar.toolkit.evaluation.execute import run_in_processes
from fastcar.toolkit.evaluation.grid import Grid, baselines
from fastcar.toolkit.evaluation.metrics import flicker
from fastcar.toolkit.evaluation.moved import MovedBytes
from fastcar.toolkit.evaluation.setting import Setting
from fastcar.toolkit.evaluation.statistics import pareto, setting_rows
from fastcar.toolkit.evaluation.store import COLUMNS, Store, write_table
from fastcar.toolkit.evaluation.sweep import Plan, plan_sweep, run_sweep
from fastcar.toolkit.generation.calibrate import thresholds_for_ratio
from fastcar.toolkit.generation.run import generate
from fastcar.toolkit.generation.score import cross_entropy
from fastcar.toolkit.program.descriptors import Opcode
from fastcar.toolkit.report import summary
from fastcar.toolkit.settings import AttentionSettings, ReplaySettings

PROMPTS, SEEDS, FRAMES = ("left turn", "braking"), 2, 3
TRIALS = ("straight", "sliding", "slow")


def plan_of(bundle: Bundle, out: Path, **changes: Any) -> Plan:
    grid = Grid(
        replay_ratios=(0.5,),
        hold_replay_ratios=(0.4,),
        policies=("all",),
        attentions=(AttentionSettings(), AttentionSettings(2, 5)),
        baselines=baselines("--baseline", ["random:0.5", "layers:1"]),
    )
    given = {"frames": FRAMES, "trial_prompts": TRIALS} | changes
    return plan_sweep([bundle], grid.settings(), PROMPTS, SEEDS, out, **given)


@pytest.fixture(scope="module")
def bundle(bundle_w8a8: Path) -> Bundle:
    return Bundle.open(bundle_w8a8)


@pytest.fixture(scope="module")
def swept(bundle: Bundle, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    out = tmp_path_factory.mktemp("sweep") / "out"
    return out, run_sweep(plan_of(bundle, out), Here(), 1)


def one(rows: list[dict[str, Any]], setting: str, prompt: str = "braking", seed: int = 1) -> dict[str, Any]:
    (row,) = [r for r in rows if (r["setting"], r["prompt"], r["seed"]) == (setting, prompt, str(seed))]
    return row


def direct(bundle: Bundle, replay: ReplaySettings, attention: AttentionSettings | None = None, seed: int = 1):
    return generate(bundle, "braking", frames=FRAMES, seed=seed, replay=replay, attention=attention)


def test_a_row_a_run(swept: tuple[Path, list[dict[str, Any]]]) -> None:
    _, rows = swept
    assert len(rows) == 2 * 5 * len(PROMPTS) * SEEDS
    assert [row["setting"] for row in rows[:: len(PROMPTS) * SEEDS]][:3] == ["dense", "ratio 0.5 all", "hold 0.4 all"]
    assert all(set(COLUMNS) <= set(row) | {"max_age", "refresh"} for row in rows)


@pytest.mark.parametrize(
    ("setting", "replay", "attention"),
    [
        ("random 0.5", ReplaySettings(policy="all", random=0.5), None),
        ("layers 1, window 5+2", ReplaySettings((None, -math.inf), "all"), AttentionSettings(2, 5)),
        ("hold 0.4 all", ReplaySettings(policy="all", hold=0.4), None),
        ("dense, window 5+2", ReplaySettings(), AttentionSettings(2, 5)),
    ],
)
def test_values_are_those_of_direct_calls(bundle: Bundle, swept, setting: str, replay, attention) -> None:
    run, dense = direct(bundle, replay, attention), direct(bundle, ReplaySettings())
    pictures, reference = view_of(bundle, run), view_of(bundle, dense)
    expected, row = summary(pictures, reference), one(swept[1], setting)
    for name in ("replay_ratio", "eligible_replay_ratio", "skipped_ratio", "ssim", "code_agreement", "flicker"):
        assert row[name] == pytest.approx(expected[name], abs=1e-12), name
    assert row["psnr_db"] == pytest.approx(expected["psnr_db"], abs=1e-9)
    assert row["dense_flicker"] == flicker(reference.frames[0])
    assert (row["identical_frames"], row["steps"]) == (expected["identical_frames"], FRAMES * LAYOUT.cells)
    assert row["speed_up"] == one(swept[1], "dense")["seconds"] / row["seconds"]
    tokens = bundle.prompts.encode("braking", LAYOUT.prompt_length)[None]
    tokens = np.concatenate([tokens, run.codes.reshape(1, -1).astype(np.int64) + LAYOUT.code_offset], axis=1)
    assert row["nll"] == cross_entropy(open_backend("reference", bundle), tokens)
    assert not np.array_equal(run.codes, dense.codes)  # otherwise nothing was compared


def test_dense_runs_are_their_own_reference(swept) -> None:
    row = one(swept[1], "dense")
    assert (row["psnr_db"], row["ssim"], row["code_agreement"], row["speed_up"]) == (math.inf, 1.0, 1.0, 1.0)
    assert row["identical_frames"] == FRAMES and row["nll"] == row["dense_nll"]


def test_thresholds_are_found_on_other_prompts(bundle: Bundle, swept) -> None:
    backend = open_backend("onnxruntime", bundle)
    found = [
        thresholds_for_ratio(bundle, backend, trial, 0.5, frames=FRAMES, replay=ReplaySettings(policy="all")).threshold
        for trial in TRIALS
    ]
    row = one(swept[1], "ratio 0.5 all")
    assert row["thresholds"] == [statistics.median(found)] * 2 and row["wanted_ratio"] == 0.5
    run = direct(bundle, ReplaySettings((row["thresholds"][0],) * 2, "all"))
    assert row["eligible_replay_ratio"] == run.eligible_replay_ratio > 0


def test_bytes_are_less_by_the_weights_that_are_not_read(bundle: Bundle, swept) -> None:
    """Weights as packed: of layers whose rows all replay, gate, up and down are not read, all else is."""
    manifest = bundle.manifest
    nodes = ProgramPlan(manifest.config, manifest.frame_layout, int4_linears(8), ANY_ENGINE).nodes
    mlp = sum(4 * 16 * n["beats"] for n in nodes if n["opcode"] in (Opcode.LINEAR_GATE_UP, Opcode.LINEAR_DOWN))
    each = mlp / manifest.config.layers
    assert each >= 3 * manifest.config.hidden * manifest.config.mlp
    dense, row = one(swept[1], "dense"), one(swept[1], "layers 1")
    run = direct(bundle, ReplaySettings((None, -math.inf), "all"))
    skipped = run.replay.all(axis=3).sum() / dense["steps"]
    assert skipped > 0.5 and dense["bytes_per_step"] == row["dense_bytes_per_step"]
    saved = dense["bytes_per_step"] - row["bytes_per_step"]
    assert saved == pytest.approx(each * skipped, rel=0.05)  # the MLP's norm is left out, too
    lots = direct(bundle, ReplaySettings(policy="independent", random=0.0))
    assert MovedBytes(bundle).per_step(lots) == dense["bytes_per_step"]


def test_a_second_sweep_does_nothing_again(bundle: Bundle, swept) -> None:
    out, rows = swept
    before = {file: file.stat().st_mtime_ns for file in (out / "runs").glob("*.json")}
    here = Here()
    assert run_sweep(plan_of(bundle, out), here, 1) == rows
    assert here.tasks == [] and before == {f: f.stat().st_mtime_ns for f in (out / "runs").glob("*.json")}
    runs = len({row["key"] for row in rows})
    assert len(before) == runs + 2 * len(TRIALS) and runs == len(rows)


def test_only_what_is_missing_or_other_is_done(bundle: Bundle, bundle_w8a8: Path, swept, tmp_path: Path) -> None:
    out, rows = swept
    key, torn = rows[-1]["key"], rows[-2]["key"]
    (out / "runs" / f"{key}.json").unlink()
    (out / "runs" / f"{torn}.json").write_text('{"key": "' + torn)
    here = Here()
    again = run_sweep(plan_of(bundle, out), here, 1)
    assert {task.key for task in here.tasks} == {key, torn}
    assert same_results(rows, again)
    other = copy_of(bundle_w8a8, tmp_path / "w8a8")
    edit_manifest(other, tas_unit=[2 * unit for unit in bundle.manifest.tas_unit])  # the same name, another model
    here = Here()
    with pytest.raises(ZeroDivisionError):
        run_sweep(plan_of(Bundle.open(other), out), lambda *a: 1 / 0, 1)
    moved = copy_of(bundle_w8a8, tmp_path / "elsewhere" / "w8a8")
    run_sweep(plan_of(Bundle.open(moved), out), here, 1)
    assert here.tasks == []


def test_tables_are_equal(swept, tmp_path: Path) -> None:
    rows = swept[1]
    parquet, text = write_table(tmp_path, rows)
    frame = polars.read_parquet(parquet)
    assert frame.columns == list(COLUMNS) and frame.height == len(rows)
    with text.open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == len(rows)
    for line, row in zip(lines, frame.to_dicts(), strict=True):
        for name, value in row.items():
            if isinstance(value, list):
                assert [None if t == "null" else float(t) for t in line[name].split()] == value, name
            elif value is None:
                assert line[name] == ""
            elif isinstance(value, float):
                assert float(line[name]) == value, name
            else:
                assert line[name] == str(value)
    assert frame["psnr_db"].to_list() == [row["psnr_db"] for row in rows]


def test_settings_are_summed_up(swept) -> None:
    rows = swept[1]
    found = {one["setting"]: one for one in setting_rows(rows)}
    values = [row["nll"] for row in rows if row["setting"] == "random 0.5"]
    assert found["random 0.5"]["nll"] == {
        "mean": pytest.approx(statistics.mean(values)), "spread": pytest.approx(statistics.stdev(values)),
    }  # fmt: skip
    assert found["dense"]["psnr_db"] is None and found["dense"]["identical"] == found["dense"]["runs"] == 4


def test_the_front_is_what_nothing_beats() -> None:
    points = [(1.0, 9.0), (2.0, 5.0), (2.0, 6.0), (3.0, 6.0), (2.5, 1.0), (0.5, 9.0)]
    assert pareto(points) == [0, 3] and pareto([]) == []


@pytest.mark.slow
def test_a_killed_process_and_an_interruption_lose_nothing(bundle: Bundle, swept, tmp_path: Path) -> None:
    told: list[str] = []
    plan = plan_of(bundle, tmp_path / "out")
    killed: list[int] = []

    def kill_one(stage: str, done: int, total: int) -> None:
        if done == 2 and not killed:
            killed.append(multiprocessing.active_children()[0].pid)
            os.kill(killed[0], signal.SIGKILL)
        if stage == "runs" and done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt, match=r"5 of 36 runs are kept; the same command goes on"):
        run_sweep(plan, run_in_processes, 2, kill_one, told.append)
    assert not multiprocessing.active_children() and killed
    assert len(told) <= 1 and all("signal 9" in text for text in told)  # none if it died between two runs
    kept = set((tmp_path / "out" / "runs").glob("*.json"))
    rows = run_sweep(plan, run_in_processes, 2)
    assert {row["key"] for row in rows} == {row["key"] for row in swept[1]}
    assert [row["psnr_db"] for row in rows] == [row["psnr_db"] for row in swept[1]]
    files = sorted(file.name for file in (tmp_path / "out" / "runs").iterdir() if file.name != ".lock")
    assert len(files) == len(set(files)) and not [name for name in files if name.startswith(".")]
    assert kept < set((tmp_path / "out" / "runs").glob("*.json"))


def test_bad_input_is_told_before_any_work(bundle: Bundle, tmp_path: Path) -> None:
    settings = Grid(replay_ratios=(0.5,)).settings()
    with pytest.raises(UsageError, match="2 of 3 prompts .*'left trn' .*'dancing'") as error:
        plan_sweep([bundle], settings, ["left trn", "braking", "dancing"], 1, tmp_path)
    assert error.value.subject == "--prompts"
    with pytest.raises(UsageError, match="calibration-prompts"):
        plan_sweep([bundle], settings, bundle.prompts.known, 1, tmp_path, frames=2)
    with pytest.raises(UsageError, match="--frames"):
        plan_sweep([bundle], settings, PROMPTS, 1, tmp_path, frames=1)
    with pytest.raises(UsageError, match="--seeds"):
        plan_sweep([bundle], settings, PROMPTS, 0, tmp_path)
    with pytest.raises(UsageError, match="--seeds: 100000000000000000000; expected at most"):
        plan_sweep([bundle], settings, PROMPTS, 10**20, tmp_path)
    with pytest.raises(UsageError, match="twice"):
        plan_sweep([bundle, bundle], settings, PROMPTS, 1, tmp_path)
    with pytest.raises(OutputError, match="MiB free"):
        plan_sweep([bundle], settings, PROMPTS, 1, tmp_path, bytes_needed=1 << 60)
    assert list(tmp_path.iterdir()) == []


def test_one_sweep_a_folder(bundle: Bundle, tmp_path: Path) -> None:
    plan = plan_of(bundle, tmp_path)
    with Store(tmp_path).locked(), pytest.raises(UsageError, match="another sweep"):
        run_sweep(plan, Here(), 1)


@pytest.mark.slow
def test_the_command(bundle_w8a8: Path, tmp_path: Path) -> None:
    prompts, out = tmp_path / "prompts.txt", tmp_path / "out"
    prompts.write_text("braking\n\n  left turn \n")
    words = ["sweep", bundle_w8a8, "--thresholds", "0.5", "--prompts", prompts, "--seeds", 1, "--frames", 2]
    outcome = fastcar_run(*words, "--out", out, "--json")
    assert outcome.code == 0, outcome.stderr
    result = json.loads(outcome.stdout)
    assert result["runs"] == 4 and [one["setting"] for one in result["settings"]] == [
        "dense",
        "threshold 0.5 independent",
    ]
    assert all(Path(file).is_file() for file in result["files"])
    assert polars.read_parquet(out / "runs.parquet").height == 4
    assert "threshold" in fastcar_run(*words, "--out", out).stdout


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--thresholds", "a", "--prompt", "braking"), "--thresholds: 'a'"),
        (("--thresholds", "1"), "--prompts: none"),
        (("--prompts", "absent.txt"), "absent.txt"),
        (("--prompt", "dancing"), "dancing"),
        (("--settings", "s.toml", "--thresholds", "1", "--prompt", "braking"), "--thresholds beside it"),
        (("--settings", "s.toml", "--prompt", "braking"), "s.toml"),
        (("--prompt", "braking", "--backend", "pynq"), "--backend: pynq"),
    ],
)
def test_the_command_refuses(bundle_w8a8: Path, tmp_path: Path, words: tuple[str, ...], expected: str) -> None:
    outcome = fastcar_run("sweep", bundle_w8a8, *words, "--out", tmp_path / "out")
    assert outcome.code == 2 and expected in outcome.error and not (tmp_path / "out").exists()


def test_ratios_that_were_missed_are_told(bundle: Bundle, tmp_path: Path) -> None:
    """Of every kind that asks for one."""
    missed = Setting(name="held", hold_replay_ratio=0.9), Setting(name="lots", random=0.9, policy="all")
    plan = plan_sweep([bundle], [Setting(), *missed], ["braking"], 1, tmp_path, frames=2)
    replayed = {"dense": 0.0, "held": 0.5, "lots": 0.88}
    rows = [row | {"eligible_replay_ratio": replayed[row["setting"]]} for row in run_sweep(plan, Here(), 1)]
    told = _missed(rows)
    assert len(told) == 1 and "held: replayed 0.50" in told[0]


def test_prompts_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "p.txt").write_bytes(b"\xef\xbb\xbfbraking\r\n\r\n left turn \r\n")
    assert prompt_lines("--prompts", tmp_path / "p.txt") == ("braking", "left turn")
