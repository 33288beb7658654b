"""``fastcar tune``: what it finds, keeps in the bundle and refuses."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from car_like import BACKBONE, LAYOUT
from cli_runs import parsed, run, succeeded
from depth_bundle import depth_bundle

from fastcar.toolkit.bundle.bundle import MANIFEST, Bundle
from fastcar.toolkit.cli.tune import _value
from fastcar.toolkit.tuning.tune import tune

SMALL = ("--clips", 1, "--processes", 1)


@pytest.fixture
def bundle(bundle_w8a8: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(bundle_w8a8, tmp_path / "bundle"))


def test_thresholds_are_kept_with_their_record_and_used(bundle: Path, tmp_path: Path):
    result = parsed(run("tune", bundle, "--replay-ratio", 0.5, *SMALL, "--json"))
    assert set(result["candidates"]) == {"uniform threshold", "equal shares", "by sensitivity", "between"}
    chosen = result["candidates"][result["chosen"]]
    near = [one for one in result["candidates"].values() if abs(one["ratio"] - 0.5) <= 0.02]
    assert not near or chosen["divergence"] == min(one["divergence"] for one in near)
    manifest = Bundle.open(bundle).manifest
    stored = json.loads((bundle / MANIFEST).read_text())
    assert stored["thresholds"] == chosen["thresholds"] and manifest.policy == "all"
    assert stored["record"]["tuning"]["chosen"] == result["chosen"]
    assert "cross_entropy_fp32" in stored["record"]  # what was there before
    clip = parsed(run("generate", bundle, "--prompt", "slow", "--out", tmp_path / "clip", "--json"))
    assert clip["thresholds"] == chosen["thresholds"] and clip["policy"] == "all"
    assert clip["summary"]["eligible_replay_ratio"] == pytest.approx(0.5, abs=0.25)
    assert "tuned for" in succeeded(run("inspect", bundle)).stdout


def test_one_threshold_and_a_dry_run(bundle: Path):
    before = (bundle / MANIFEST).read_bytes()
    result = parsed(run("tune", bundle, "--replay-ratio", 0.5, "--uniform", "--dry-run", *SMALL, "--json"))
    assert list(result["candidates"]) == ["uniform threshold"] == [result["chosen"]]
    assert len(set(result["candidates"]["uniform threshold"]["thresholds"])) == 1
    assert result["held_out"]["uniform"] == result["held_out"]["chosen"]
    assert (bundle / MANIFEST).read_bytes() == before and not result["stored"]


def test_the_most_replay_that_keeps_a_divergence(bundle: Path):
    found = [
        parsed(run("tune", bundle, "--max-divergence", limit, "--uniform", "--dry-run", *SMALL, "--json"))
        for limit in (0.05, 10)
    ]
    strict, loose = (one["candidates"][one["chosen"]] for one in found)
    assert strict["divergence"] <= 0.05 and strict["ratio"] < loose["ratio"]
    assert loose["ratio"] > 0.9


def test_clips_are_apart(bundle: Path, tmp_path: Path):
    (tmp_path / "own.txt").write_text("slow\n\n left turn \n")
    given = ("--prompts", tmp_path / "own.txt", "--clips", 3, "--processes", 1, "--uniform", "--dry-run", "--json")
    result = parsed(run("tune", bundle, "--replay-ratio", 0.5, *given))
    assert [scene["prompt"] for scene in result["scenes"]] == ["slow", "left turn", "slow"]
    pairs = [{(s["prompt"], s["seed"]) for s in result[name]} for name in ("scenes", "held_out_scenes")]
    assert len(pairs[0]) == 3 and not pairs[0] & pairs[1]


@pytest.mark.parametrize(
    "arguments, words",
    [
        ((), ("--replay-ratio, --min-psnr", "0 of them", "exactly one")),
        (("--replay-ratio", 0.5, "--min-psnr", 30), ("2 of them",)),
        (("--replay-ratio", 1.5), ("--replay-ratio: 1.5",)),
        (("--min-psnr", -1), ("--min-psnr: -1.0", "dB")),
        (("--min-ssim", 1), ("--min-ssim: 1.0", "above 0 and below 1")),
        (("--max-divergence", "nan"), ("--max-divergence: nan", "nats a code")),
        (("--replay-ratio", 0.5, "--policy", "some"), ("--policy: some", "independent, mean, all")),
        (("--replay-ratio", 0.9, "--max-age", 1), ("at most", "--max-age 1")),
        (("--replay-ratio", 0.5, "--clips", 0), ("--clips: 0",)),
        (("--replay-ratio", 0.5, "--frames", 1), ("--frames: 1",)),
        (("--replay-ratio", 0.5, "--frames", LAYOUT.frames + 1), (f"--frames: {LAYOUT.frames + 1}",)),
        (("--replay-ratio", 0.5, "--prompts", "nowhere.txt"), ("--prompts", "nowhere.txt")),
        (("--replay-ratio", 0.5, "--seed", -1), ("--seed: -1",)),
        (("--replay-ratio", 0.5, "--seed", 2**64 - 3, "--clips", 2), (f"--seed: {2**64 - 3}", "at most 2^64 - 4")),
        (("--max-divergence", 0.5, "--frames", 1), ("--frames: 1", "with --max-divergence")),
    ],
)
def test_refused_before_any_work(bundle: Path, arguments: tuple, words: tuple[str, ...], monkeypatch):
    monkeypatch.setattr("fastcar.toolkit.cli.tune.Followers", lambda *_: pytest.fail("no work may start"))
    outcome = run("tune", bundle, *arguments)
    assert outcome.code == 2 and all(word in outcome.error for word in words), outcome.stderr


def test_what_no_replay_reaches_is_told(bundle: Path):
    before = (bundle / MANIFEST).read_bytes()
    outcome = run("tune", bundle, "--max-divergence", 1e-12, "--uniform", *SMALL)
    assert outcome.code == 2 and "1e-12 or better" in outcome.error and "at a replay ratio of" in outcome.error
    assert (bundle / MANIFEST).read_bytes() == before


def test_an_archive_is_not_written_to(bundle: Path, tmp_path: Path):
    archive = Bundle.open(bundle).archive(tmp_path / "bundle.fastcar")
    outcome = run("tune", archive, "--replay-ratio", 0.5)
    assert outcome.code == 2 and "an archive" in outcome.error
    assert BACKBONE.layers == len(Bundle.open(archive).manifest.thresholds)


def test_settings_that_thresholds_were_tuned_with_are_told(bundle: Path, tmp_path: Path):
    window = ("--max-age", 2, "--attention-window", "1f")
    words = f"--max-age 2 --attention-window {LAYOUT.tokens_per_frame}"
    tuned = succeeded(run("tune", bundle, "--replay-ratio", 0.3, "--uniform", *window, *SMALL))
    assert f"they are for: fastcar generate {words}" in tuned.stdout
    generate = ("generate", bundle, "--prompt", "slow", "--out", tmp_path / "clip")
    for others in ((), ("--max-age", 2), (*window, "--policy", "independent")):
        said = succeeded(run(*generate, *others)).stderr
        assert f"tuned with --policy all {words}; this run has --policy" in said
    for others in (window, ("--threshold", 1), ("--dense",), ("--hold-replay-ratio", 0.3)):
        assert "were tuned" not in succeeded(run(*generate, *others)).stderr


def test_a_bundle_that_was_replaced_meanwhile_is_left_alone(bundle: Path, monkeypatch):
    other = {"files": {**json.loads((bundle / MANIFEST).read_text())["files"], "more": {"sha256": "", "bytes": 0}}}
    written: list[bytes] = []

    def replaced(*arguments):
        found = tune(*arguments)
        (bundle / MANIFEST).write_text(json.dumps(json.loads((bundle / MANIFEST).read_text()) | other))
        written.append((bundle / MANIFEST).read_bytes())
        return found

    monkeypatch.setattr("fastcar.toolkit.cli.tune.tune", replaced)
    outcome = run("tune", bundle, "--replay-ratio", 0.5, "--uniform", *SMALL)
    assert outcome.code == 2 and "another bundle since" in outcome.error
    assert (bundle / MANIFEST).read_bytes() == written[0]


def test_no_ssim_of_pictures_smaller_than_its_window(tmp_path: Path, monkeypatch):
    depth_bundle(tmp_path / "depth")
    monkeypatch.setattr("fastcar.toolkit.cli.tune.Followers", lambda *_: pytest.fail("no work may start"))
    outcome = run("tune", tmp_path / "depth", "--min-ssim", 0.5, "--prompts", "x")
    assert outcome.code == 2 and "--min-ssim: pictures of 3 x 2; expected" in outcome.error


def test_what_cannot_be_measured_is_a_dash() -> None:
    assert _value("ssim", float("nan")) == "-" and _value("ratio", 0.125) == "12.5 %"
