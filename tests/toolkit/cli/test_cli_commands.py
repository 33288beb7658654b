"""What the commands do when all is well: files, text, JSON on stdout and nothing else there."""

from __future__ import annotations

import json
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import av
import numpy as np
import pytest
from car_like import BACKBONE, LAYOUT, PIXELS
from cli_runs import parsed, run, succeeded
from PIL import Image
from safetensors.numpy import load_file

import fastcar
from fastcar.export.quantize import RECIPES
from fastcar.toolkit.bundle.bundle import MANIFEST, Bundle
from fastcar.toolkit.cli.app import COMMANDS
from fastcar.toolkit.cli.console import command_line, plain, record_rows, table
from fastcar.toolkit.report.settings_table import threshold_text

FILES = {"video.mp4", "video.gif", "sheet.png", "run.safetensors", "result.json"}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_every_command_explains_itself_with_examples(command: str, flag: str):
    text = succeeded(run(command, flag)).stdout
    assert f"Usage: fastcar {command}" in text and "--json" in text
    examples = re.findall(rf"^ +(fastcar {command} .*)$", text.split("Examples:")[1], re.MULTILINE)
    assert examples
    for example in examples:
        options = [word for word in shlex.split(example) if word.startswith("--")]
        assert all(option in text.split("Examples:")[0] for option in options), example


def test_help_lists_the_commands_and_exit_codes():
    for arguments in ((), ("--help",), ("-h",)):
        text = succeeded(run(*arguments)).stdout
        assert all(command in text for command in COMMANDS)
        assert "130" in text and "fastcar demo" in text


@pytest.mark.parametrize("command", ["export", "demo", "plan"])
def test_help_lists_the_recipes(command: str):
    text = re.sub(r"\s+", " ", succeeded(run(command, "--help")).stdout).split("Examples:")[0]
    line = text[text.index("--recipe") :].split(" --")[0]
    named = re.findall(r"w\d+a\d+[\w-]*", line)
    assert named[: len(RECIPES)] == list(RECIPES)


def test_version_and_module():
    outcome = succeeded(run("--version"))
    assert outcome.stdout == f"fastcar, version {fastcar.__version__}\n" and not outcome.stderr
    by_module = subprocess.run(
        [sys.executable, "-m", "fastcar", "--version"], capture_output=True, text=True, check=True, cwd="/"
    )
    assert by_module.stdout == outcome.stdout


def test_generate_writes_every_file(bundle_w8a8: Path, tmp_path: Path):
    out = tmp_path / "new" / "clip"
    arguments = ("generate", bundle_w8a8, "--prompt", "left turn", "--seed", 7, "--threshold", -0.6, "--out", out)
    result = parsed(run(*arguments, "--json"))
    assert {path.name for path in out.iterdir()} == FILES
    assert {Path(file).name for file in result["files"]} == FILES
    assert json.loads((out / "result.json").read_text()) == {k: v for k, v in result.items() if k != "calibration"}
    assert (result["prompts"], result["seed"], result["interrupted"]) == (["left turn"], 7, False)
    assert result["thresholds"] == [-0.6, -0.6] and result["calibration"] is None

    expected = fastcar.generate(
        Bundle.open(bundle_w8a8), "left turn", seed=7, replay=fastcar.toolkit.settings.ReplaySettings((-0.6, -0.6))
    )
    stored = load_file(out / "run.safetensors")
    np.testing.assert_array_equal(stored["codes"], expected.codes)
    np.testing.assert_array_equal(stored["tas"], expected.tas)
    np.testing.assert_array_equal(stored["replay"], expected.replay)
    assert result["summary"]["eligible_replay_ratio"] == expected.eligible_replay_ratio

    with av.open(str(out / "video.mp4")) as container:
        stream = container.streams.video[0]
        assert stream.codec_context.name == "h264"
        assert stream.width % 2 == stream.height % 2 == 0
        assert len(list(container.decode(stream))) == LAYOUT.frames
    with Image.open(out / "video.gif") as gif:
        assert 1 < gif.n_frames <= LAYOUT.frames and gif.width * LAYOUT.grid[0] == gif.height * LAYOUT.grid[1]
    assert min(Image.open(out / "sheet.png").size) >= PIXELS


def test_generate_tells_a_person(bundle_w8a8: Path, tmp_path: Path):
    outcome = succeeded(run("generate", bundle_w8a8, "--prompt", "Left  TURN", "--frames", 2, "--out", tmp_path))
    assert "steps/s" in outcome.stdout and "replay ratio" in outcome.stdout
    assert str(tmp_path / "video.mp4") in outcome.stdout.splitlines()
    assert outcome.stderr == "generating ...\n"


def test_several_prompts_are_several_videos(bundle_w4a8: Path, tmp_path: Path):
    result = parsed(
        run("generate", bundle_w4a8, "--prompt", "slow", "--prompt", "braking", "--dense", "--json", "--out", tmp_path)
    )
    names = {path.name for path in tmp_path.iterdir()}
    assert {f"{name}-{clip}.{end}" for name, end in (("video", "mp4"), ("sheet", "png")) for clip in (1, 2)} <= names
    assert result["prompts"] == ["slow", "braking"] and result["summary"]["replay_ratio"] == 0


@pytest.mark.parametrize("frames", [1, LAYOUT.frames])
def test_compare_writes_a_report_of_both_runs(bundle_w8a8: Path, tmp_path: Path, frames: int):
    arguments = ("--prompt", "left turn", "--threshold", "-inf", "--compare", "--frames", frames, "--out", tmp_path)
    result = parsed(run("generate", bundle_w8a8, *arguments, "--json"))
    assert {path.name for path in tmp_path.iterdir()} == {*FILES, "report.html", "replay-map.png"}
    assert result["thresholds"] == ["-Infinity", "-Infinity"]
    summary = result["summary"]
    assert summary["eligible_replay_ratio"] == (None if frames == 1 else 1.0)
    assert summary["dense_steps_per_second"] > 0 and 0 <= summary["code_agreement"] <= 1
    report = (tmp_path / "report.html").read_text()
    assert "<html" in report and "left turn" in report and not re.search(r"(src|href)=[\"']https?:", report)
    assert "--threshold=-inf" in report or "--threshold -inf" in report


def test_replay_ratio_tells_the_calibration(bundle_w8a8: Path, tmp_path: Path):
    prompts = [word for prompt in ("left turn", "slow", "braking", "straight") for word in ("--prompt", prompt)]
    outcome = run("generate", bundle_w8a8, *prompts, "--replay-ratio", 0.5, "--json", "--out", tmp_path)
    result = parsed(outcome)
    calibration, achieved = result["calibration"], result["summary"]["eligible_replay_ratio"]
    assert calibration["threshold"] == result["thresholds"][0] and calibration["trials"] > 0
    assert calibration["achieved"] == achieved, "the trials run with the seed of the clip"
    assert abs(achieved - 0.5) <= 0.05 and "note:" not in outcome.stderr


@pytest.mark.parametrize("ratio", [0, 1])
def test_extreme_ratios_are_exact(bundle_w8a8: Path, tmp_path: Path, ratio: int):
    result = parsed(
        run("generate", bundle_w8a8, "--prompt", "slow", "--replay-ratio", ratio, "--json", "--out", tmp_path)
    )
    assert result["summary"]["eligible_replay_ratio"] == ratio
    assert result["thresholds"] == [["Infinity", "-Infinity"][ratio]] * BACKBONE.layers


def test_a_missed_ratio_is_told(bundle_w8a8: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from fastcar.toolkit.cli import generate as module
    from fastcar.toolkit.generation.calibrate import RatioCalibration

    monkeypatch.setattr(module, "thresholds_for_ratio", lambda *_, **__: RatioCalibration(float("-inf"), 0.5, 6))
    outcome = run("generate", bundle_w8a8, "--prompt", "slow", "--replay-ratio", 0.5, "--json", "--out", tmp_path)
    assert parsed(outcome)["calibration"]["achieved"] == 0.5
    assert "note: asked for a replay ratio of 0.5, this run has 1.00 of the eligible" in outcome.stderr


def test_a_held_ratio_needs_no_thresholds_of_the_bundle(bundle_w8a8: Path, tmp_path: Path):
    """By default no layer of a bundle replays; what is held finds its thresholds in the first frame's scores."""
    assert not any(Bundle.open(bundle_w8a8).manifest.thresholds)
    arguments = ("--prompt", "slow", "--hold-replay-ratio", 0.5, "--compare", "--out", tmp_path)
    outcome = run("generate", bundle_w8a8, *arguments, "--json")
    result = parsed(outcome)
    replayed = load_file(tmp_path / "run.safetensors")["replay"]  # (frames, places, layers, rows)
    early = replayed.reshape(-1, *replayed.shape[2:])[: 2 * LAYOUT.cells - 1]  # the last place decodes frame 2's first
    assert not early.any() and 0.5 <= replayed[2:].mean() <= 1, "and makes up for the frame that could not"
    assert result["threshold_offsets"][:2] == ["Infinity", "Infinity"]
    assert "by the scores of the frame before" in (tmp_path / "report.html").read_text()
    outcome = run("generate", bundle_w8a8, *arguments, "--frames", 2)
    assert "has 0.00 of the eligible; the thresholds move from the third frame on" in succeeded(outcome).stderr


def test_a_table_keeps_numbers_in_line_and_settings_whole(capsys: pytest.CaptureFixture[str]):
    table("facts", [("number", "1.5"), ("text", "a sentence that is longer than any number in a table")])
    table("runs", [("ratio 0.2\nindependent", *("1.234 (0.123)",) * 6)], ("setting", *("column",) * 6))
    lines = capsys.readouterr().out.splitlines()
    assert any(re.match(r"│ number │ 1\.5 +│", line) for line in lines)
    assert any(line.startswith("│ ratio 0.2   │") for line in lines)
    assert any(line.startswith("│ independent │") for line in lines)
    assert all(len(line) <= 80 for line in lines)


def test_a_bundles_record_is_told_with_units():
    record = {"quantization_notes": [], "cross_entropy_fp32": 1.19887, "cross_entropy_change_percent": -0.0312}
    assert record_rows(record) == [
        ("quantization notes", "none"),
        ("cross entropy fp32, nats/code", "1.1989"),
        ("cross entropy, change", "-0.03 %"),
    ]
    assert threshold_text((None, -math.inf, -math.inf, 1.25)) == "layer 0: never, layers 1 to 2: always, layer 3: 1.25"


def test_sampling_options_reach_the_run(bundle_w8a8: Path, tmp_path: Path):
    options = ("--temperature", 0, "--top-k", 3, "--top-p", 0.5, "--guidance", 1, "--policy", "mean", "--max-age", 2)
    result = parsed(
        run("generate", bundle_w8a8, "--prompt", "slow", "--frames", 2, *options, "--json", "--out", tmp_path)
    )
    assert result["sampling"] == {"temperature": 0.0, "top_k": 3, "top_p": 0.5, "guidance": 1.0}
    assert (result["policy"], result["max_age"], result["summary"]["rows"]) == ("mean", 2, 1)


def test_attention_options_reach_the_runs(bundle_w8a8: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The trials', the clip's and the dense one's alike; the record, the report and its command tell them."""
    from fastcar.toolkit.backends.onnxruntime import OnnxRuntimeBackend
    from fastcar.toolkit.settings import AttentionSettings

    start, seen = OnnxRuntimeBackend.start, []
    monkeypatch.setattr(OnnxRuntimeBackend, "start", lambda *given: seen.append(given[-2]) or start(*given))
    options = ("--prompt", "slow", "--frames", 3, "--replay-ratio", 0.5, "--compare", "--json", "--out", tmp_path)
    attention = ("--attention-window", "2f", "--attention-sinks", 3, "--attention-columns", 4)
    result = parsed(run("generate", bundle_w8a8, *options, *attention))
    window = 2 * Bundle.open(bundle_w8a8).manifest.frame_layout.tokens_per_frame
    assert result["attention"] == {"sinks": 3, "window": window, "columns": 4}
    settings = [given for given in seen if isinstance(given, AttentionSettings)]
    assert len(settings) >= 4 and set(settings) == {AttentionSettings(3, window, 4)}
    report = (tmp_path / "report.html").read_text()
    text = f"the {window} positions before, the same place of the last 4 frames and the first 3 of the clip"
    assert text in report
    assert "--attention-window 2f --attention-sinks 3 --attention-columns 4" in report


@pytest.mark.parametrize("options", [(), ("--attention-sinks", 0)])
def test_full_attention_is_the_default(bundle_w8a8: Path, tmp_path: Path, options: tuple):
    common = ("--prompt", "slow", "--frames", 1, "--json", "--out", tmp_path)
    result = parsed(run("generate", bundle_w8a8, *common, *options))
    assert result["attention"] == {"sinks": 0, "window": None, "columns": 0}


def test_both_back_ends_and_thread_counts_give_one_video(bundle_w8a8: Path, tmp_path: Path):
    videos = []
    for index, options in enumerate((("--threads", 1), ("--threads", 2), ("--backend", "reference"))):
        out = tmp_path / str(index)
        common = ("--prompt", "slow", "--frames", 2, "--seed", 5, "--threshold", -0.6)
        succeeded(run("generate", bundle_w8a8, *common, *options, "--out", out))
        videos.append((out / "video.mp4").read_bytes())
    assert videos[0] == videos[1] == videos[2]


def test_generate_reads_an_archive(bundle_w8a8: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    archive = Bundle.open(bundle_w8a8).archive(tmp_path / "car.fastcar")
    succeeded(run("generate", archive, "--prompt", "slow", "--frames", 1, "--out", tmp_path / "out"))
    assert (tmp_path / "out" / "video.mp4").is_file()


@pytest.mark.parametrize("recipe", ["w8a8", "w4a8"])
def test_inspect(recipe: str, request: pytest.FixtureRequest):
    folder = request.getfixturevalue(f"bundle_{recipe}")
    facts = parsed(run("inspect", folder, "--json"))
    manifest = json.loads((folder / MANIFEST).read_text())
    assert facts["files"] == manifest["files"] and facts["verified"] is True
    assert facts["recipe"]["name"] == recipe and facts["config"] == manifest["config"]
    assert "left turn" in facts["phrases"] and "sharp" in facts["words"]
    widths = {name: layer["bit_width"] for name, layer in facts["linear_layers"].items()}
    assert widths["layers.0.qkv"] == (8 if recipe == "w8a8" else 4) and widths["head"] == 8
    assert facts["linear_layers"]["head"]["bytes"] == BACKBONE.hidden * LAYOUT.codes + 4 * LAYOUT.codes

    text = succeeded(run("inspect", folder)).stdout
    words = ("car-like", "post_rope", "none: no layer replays", "backbone.onnx", "left turn", "cross entropy fp32")
    for word in (recipe, *words):
        assert word in text, word


def test_export_and_archive(car_like: Path, bundle_w8a8: Path, tmp_path: Path):
    out, archive = tmp_path / "a" / "bundle", tmp_path / "b" / "bundle.fastcar"
    outcome = run("export", car_like, "--recipe", "w8a8", "--out", out, "--archive", archive, "--json")
    result = parsed(outcome)
    bundle = Bundle.open(out)
    assert (result["bundle"], result["archive"], result["recipe"]) == (str(out), str(archive), "w8a8")
    assert result["record"] == bundle.manifest.record
    assert result["bytes"] == sum(entry.bytes for entry in bundle.manifest.files.values())
    assert archive.is_file() and "quantization ..." in outcome.stderr.splitlines()

    shutil.rmtree(out)
    text = succeeded(run("export", car_like, "--out", out)).stdout
    assert text.startswith(f"Wrote {out}\n") and "cross entropy fp32" in text


def test_the_demo_runs_the_whole_job(car_like: Path, tmp_path: Path):
    out = tmp_path / "demo"
    arguments = ("demo", "--model", car_like, "--out", out, "--replay-ratio", 0.5, "--seed", 3, "--frames", 4)
    outcome = succeeded(run(*arguments))
    assert {path.name for path in out.iterdir()} == {*FILES, "report.html", "replay-map.png", "bundle-w8a8"}
    result = json.loads((out / "result.json").read_text())
    assert result["policy"] == "all" and result["summary"]["frames"] == 4
    report = (out / "report.html").read_text()
    assert "--replay-ratio 0.5" in report and "--seed 3" in report
    listed = outcome.stdout.splitlines()
    assert all(str(out / name) in listed for name in ("video.mp4", "video.gif", "report.html", "replay-map.png"))
    assert "PSNR against dense" in outcome.stdout and "steps/s" in outcome.stdout


def test_json_is_plain():
    value = {"a": np.float32(1.5), "b": np.arange(2), "c": (None, True, float("nan")), 1: Path("x"), "d": -np.inf}
    assert plain(value) == {"a": 1.5, "b": [0, 1], "c": [None, True, None], "1": "x", "d": "-Infinity"}
    json.dumps(plain(value), allow_nan=False)


def test_a_command_line_gives_the_run_again():
    line = command_line(
        "generate", "my bundle", prompt=("a b", "c"), seed=0, threshold=0.0, top_k=None, dense=False, x=True
    )
    assert shlex.split(line) == [
        *("fastcar", "generate", "my bundle", "--prompt", "a b", "--prompt", "c"),
        *("--seed", "0", "--threshold", "0.0", "--x"),
    ]


def test_the_recorded_command_gives_the_same_files(bundle_w8a8: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from fastcar.toolkit.cli import generate as module

    recorded: list[str] = []
    facts_of = module.facts_of
    monkeypatch.setattr(module, "facts_of", lambda *given: recorded.append(given[-1]) or facts_of(*given))
    options = ("--prompt", "left turn", "--threshold", 0, "--temperature", 0, "--frames", 2, "--max-age", 1)
    succeeded(run("generate", bundle_w8a8, *options, "--out", tmp_path / "out"))
    before = (tmp_path / "out" / "run.safetensors").read_bytes()
    os.remove(tmp_path / "out" / "run.safetensors")
    assert "--threshold 0.0" in recorded[0] and "--temperature 0.0" in recorded[0]
    succeeded(run(*shlex.split(recorded[0])[1:]))
    stored = (tmp_path / "out" / "run.safetensors").read_bytes()
    assert len(stored) == len(before) and recorded[0] == recorded[1]


def test_what_an_earlier_run_left_is_removed(bundle_w8a8: Path, tmp_path: Path):
    """And nothing else: a file of the user's own stays."""
    out = tmp_path / "clip"
    prompts = ("--prompt", "left turn", "--prompt", "straight")
    succeeded(run("generate", bundle_w8a8, *prompts, "--dense", "--frames", 1, "--out", out))
    (out / "notes.txt").write_text("mine")
    assert (out / "video-2.mp4").is_file()
    succeeded(run("generate", bundle_w8a8, "--prompt", "straight", "--dense", "--frames", 1, "--out", out))
    assert {path.name for path in out.iterdir()} == FILES | {"notes.txt"}
