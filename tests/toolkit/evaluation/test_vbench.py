"""VBench's list of prompts, and videos where it looks for them."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import av
import numpy as np
import pytest
from car_like import LAYOUT, PIXELS
from cli_runs import run as fastcar_run
from tiny_sweep import Here, tiny_plan

from fastcar.toolkit.bundle.bundle import Bundle
from fastcar.toolkit.errors import UsageError
from fastcar.toolkit.evaluation.sweep import run_sweep
from fastcar.toolkit.evaluation.vbench import read_vbench_prompts, video_name, write_vbench_videos
from fastcar.toolkit.generation.run import generate
from fastcar.toolkit.video.decode import FrameDecoder
from fastcar.toolkit.video.mp4 import mp4_bytes


def test_names_are_those_that_vbench_looks_for() -> None:
    assert video_name("A 3D model of a 1800s victorian house.", 0) == "A 3D model of a 1800s victorian house.-0.mp4"
    assert video_name("ü" * 124, 4) == "ü" * 124 + "-4.mp4"


def test_names_that_no_file_can_have_are_replaced() -> None:
    prompts = ["a/b", "a_b", "a\0b", "x" * 300, "x" * 301, "é" * 200, "../up", "/"]
    names = [video_name(prompt, 3) for prompt in prompts]
    assert len(set(names)) == len(names) and all(name.endswith("-3.mp4") for name in names)
    assert all(len(name.encode()) <= 255 and "/" not in name and "\0" not in name for name in names)
    assert names[1] == "a_b-3.mp4"


def test_the_list_is_read_with_each_prompt_once(tmp_path: Path) -> None:
    file = tmp_path / "prompts.json"
    entries = [("braking", ["color"]), ("left turn", ["scene", "color"]), ("braking", ["scene"])]
    file.write_text(json.dumps([{"prompt_en": p, "dimension": d, "auxiliary_info": {}} for p, d in entries]))
    assert read_vbench_prompts(file) == ("braking", "left turn")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[", "not JSON"),
        ("[]", "empty"),
        ('{"a": 1}', "no list"),
        ('[{"prompt_en": "a", "dimension": []}, {"dimension": ["x"]}]', "entry 1 has no prompt_en"),
        ('[{"prompt_en": " ", "dimension": []}]', "entry 0 has no prompt_en"),
        ('[{"prompt_en": "a"}]', "entry 0 has no list of dimension"),
    ],
)
def test_another_file_is_refused(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "prompts.json"
    file.write_text(text)
    with pytest.raises(UsageError, match=words):
        read_vbench_prompts(file)


def found_by_vbench(folder: Path, prompts: list[str]) -> dict[str, list[str]]:
    """As its standard mode looks: the ending of the first name, then every prompt with 0 to 4."""
    names = os.listdir(folder)
    ending = Path(names[0]).suffix
    return {
        prompt: [f"{prompt}-{i}{ending}" for i in range(5) if f"{prompt}-{i}{ending}" in names] for prompt in prompts
    }


def test_videos_are_the_runs(bundle_w8a8: Path, tmp_path: Path) -> None:
    bundle = Bundle.open(bundle_w8a8)
    rows = run_sweep(tiny_plan(bundle, tmp_path), Here(), 1)
    folders = write_vbench_videos(tmp_path, {"w8a8": bundle}, rows)
    assert [folder.name for folder in folders] == ["00-dense", "01-threshold_0.5_independent", "02-random_0.5"]
    for folder in folders:
        assert found_by_vbench(folder, ["braking", "left turn"]) == {
            prompt: [f"{prompt}-0.mp4", f"{prompt}-1.mp4"] for prompt in ("braking", "left turn")
        }
        prompts = json.loads(folder.with_name(f"{folder.name}.prompts.json").read_text())
        assert {name: prompts[name] for name in os.listdir(folder)} == prompts
    run = generate(bundle, "left turn", frames=2, seed=1)
    pictures = FrameDecoder(bundle)(run.codes[0].reshape(-1, *run.grid))
    assert (folders[0] / "left turn-1.mp4").read_bytes() == mp4_bytes(pictures, bundle.manifest.frame_rate)
    with av.open(str(folders[2] / "braking-0.mp4")) as video:
        shown = np.stack([frame.to_ndarray(format="rgb24") for frame in video.decode(video=0)])
    assert shown.shape == (2, LAYOUT.grid[0] * PIXELS, LAYOUT.grid[1] * PIXELS, 3)
    before = {file: file.stat().st_mtime_ns for folder in folders for file in folder.iterdir()}
    (folders[1] / "braking-0.mp4").unlink()
    write_vbench_videos(tmp_path, {"w8a8": bundle}, rows)
    after = {file: file.stat().st_mtime_ns for folder in folders for file in folder.iterdir()}
    assert [file.name for file in after if after[file] != before[file]] == ["braking-0.mp4"]


def test_another_run_under_the_same_name_is_written_again(bundle_w8a8: Path, tmp_path: Path) -> None:
    bundle = Bundle.open(bundle_w8a8)
    plan = tiny_plan(bundle, tmp_path)
    subject = plan.subjects["w8a8"]
    rows = run_sweep(plan, Here(), 1)
    (folder, *_) = write_vbench_videos(tmp_path, {"w8a8": bundle}, rows)
    before = (folder / "braking-0.mp4").read_bytes()
    longer = replace(plan, subjects={"w8a8": replace(subject, frames=3)})
    write_vbench_videos(tmp_path, {"w8a8": bundle}, run_sweep(longer, Here(), 1))
    assert (folder / "braking-0.mp4").read_bytes() != before


def test_unknown_prompts_are_listed_before_any_work(bundle_w8a8: Path, tmp_path: Path) -> None:
    file = tmp_path / "prompts.json"
    names = ["braking", "a person on a horse", "a/b"]
    file.write_text(json.dumps([{"prompt_en": name, "dimension": ["scene"]} for name in names]))
    words = ["sweep", bundle_w8a8, "--thresholds", "1", "--vbench", file, "--out", tmp_path / "out"]
    outcome = fastcar_run(*words)
    assert outcome.code == 2 and not (tmp_path / "out").exists()
    assert "--vbench: 2 of 3 prompts" in outcome.error and "'a person on a horse'" in outcome.error
    assert "'a/b'" in outcome.error
    assert "beside it" in fastcar_run(*words, "--prompt", "braking").error
