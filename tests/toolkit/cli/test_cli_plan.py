"""``fastcar plan`` as a person types it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_runs import run

from fastcar import boards as boards_package
from fastcar.overlays import load_engine
from fastcar.toolkit.planner import shapes as shapes_module

ARGUMENTS = ("--board", "kv260", "--recipe", "w4a8", "--rows", 2, "--replay-ratio", 0.87)


def test_a_table_and_three_files(tmp_path: Path) -> None:
    out = tmp_path / "a plan"
    outcome = run("plan", "llama-1.1b", *ARGUMENTS, "--out", out)
    assert outcome.code == 0, outcome.stderr
    for text in ("everything estimated", "contiguous memory, MiB", "+ DRS", "rotary, TAS, cache"):
        assert text in outcome.stdout
    assert "dense: limited by " in outcome.stderr and f"wrote {out / 'roofline.svg'}" in outcome.stderr
    assert sorted(file.name for file in out.iterdir()) == ["engine.toml", "plan.json", "roofline.svg"]
    assert load_engine(out / "engine.toml").config.rows == 2
    assert json.loads((out / "plan.json").read_text())["estimated"] is True


def test_json(tmp_path: Path, bundle_w4a8: Path) -> None:
    outcome = run("plan", bundle_w4a8, "--board", "zcu104", "--frames", 3, "--out", tmp_path / "out", "--json")
    assert outcome.code == 0, outcome.stderr
    result = json.loads(outcome.stdout)
    assert result["recipe"] == "w4a8" and result["frames"] == 3 and list(result["modes"]) == ["dense"]
    mode = result["modes"]["dense"]
    assert sum(one["seconds"] for one in mode["classes"].values()) == pytest.approx(mode["seconds_per_step"])


def test_files_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A board and a shape of one's own, by relative paths; the engine's file finds its board from where it lies."""
    monkeypatch.chdir(tmp_path)
    boards, shapes = Path(boards_package.__file__).parent, Path(shapes_module.__file__).parent / "shapes"
    Path("mine.toml").write_text((boards / "zcu104.toml").read_text())
    Path("odd.toml").write_text('name = "a/b [c]"\n' + (shapes / "llama-1.1b.toml").read_text())
    outcome = run("plan", "odd.toml", "--board", "mine.toml", "--frames", 1, "--search")
    assert outcome.code == 0, outcome.stderr
    (file,) = tmp_path.glob("plan-a*/engine.toml")
    engine = load_engine(file)
    assert Path(engine.board) == (tmp_path / "mine.toml").resolve()


def test_what_does_not_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = run("plan", "vila-u-7b", "--board", "kv260")
    assert outcome.code == 2 and outcome.stdout == ""
    assert "in all" in outcome.stderr and "keys and values" in outcome.stderr
    assert outcome.stderr.splitlines()[-1].startswith("fastcar: vila-u-7b on kv260: 5,0")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "plan: no MODEL; expected a model and a board"),
        (("car",), "plan: no --board"),
        (("nothing", "--board", "kv260"), "model: 'nothing' is not known"),
        (("car", "--board", "none"), "board: 'none' is not known"),
        (("car", "--board", "kv260", "--recipe", "w1a1"), "recipe: 'w1a1'; expected one of w8a8, w4a8"),
        (("car", "--board", "kv260", "--replay-ratio", "1.5"), "--replay-ratio: 1.5; expected 0 to 1"),
        (("car", "--board", "kv260", "--replay-ratio", "nan"), "--replay-ratio: nan"),
        (("car", "--board", "kv260", "--policy", "some"), "--policy: some; expected one of independent, mean, all"),
        (("car", "--board", "kv260", "--frames", "0"), "--frames: 0; expected 1 or more"),
        (("car", "--board", "kv260", "--rows", "0"), "--rows: 0; expected 1 to 32"),
        (("car", "--board", "kv260", "--engine", "none"), "engine: 'none' is not known"),
        (("car", "--board", "kv260", "--attention-sinks", "4"), "--attention-sinks: 4 without a window"),
        (("car", "--board", "kv260", "--attention-columns", "4"), "--attention-columns: 4 without a window"),
        (("car", "--board", "kv260", "--attention-window", "2frames"), "--attention-window: '2frames'"),
        (("car", "--board", "kv260", "--out", "/dev/null/x"), "/dev/null is a file"),
    ],
)
def test_bad_options(arguments: tuple[str, ...], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = run("plan", *arguments)
    assert outcome.code == 2
    assert told in outcome.error
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_published(tmp_path: Path) -> None:
    outcome = run("plan", "--published", "--json")
    result = json.loads(outcome.stdout)
    assert len(result["designs"]) == 10 and len(result["arXiv:2505.14709"]) == 7
    assert result["estimated"] is True


SHAPE = """
[backbone]
hidden = 256
layers = 2
heads = 4
kv_heads = 4
head_dim = 64
mlp = 512
vocab = 1280
[frame_layout]
prompt_length = 8
frames = 1
grid = [4, 4]
code_offset = 256
codes = 1024
"""


def test_numbers_that_nothing_holds(tmp_path: Path) -> None:
    shape = tmp_path / "large.toml"
    shape.write_text(SHAPE.replace("1280", "9" * 26))
    outcome = run("plan", shape, "--board", "kv260", "--out", tmp_path / "out")
    assert outcome.code == 2 and "backbone.vocab: Input should be less than" in outcome.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["a/../../b", "", "x\\u0000y", "x\\u001b[2J"])
def test_names_that_are_no_folders(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "here"
    place.mkdir()
    monkeypatch.chdir(place)
    Path("odd.toml").write_text(f'name = "{name}"\n{SHAPE}')
    outcome = run("plan", "odd.toml", "--board", "kv260", "--search")
    assert outcome.code == 0, outcome.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["here"] and len(list(place.iterdir())) == 2
    engine = load_engine(next(place.glob("plan-*/engine.toml")))
    assert engine.config.name.isprintable() and "/" not in engine.config.name and engine.config.name[0] != "-"


def test_a_folder_in_the_way(tmp_path: Path) -> None:
    """Nothing is counted, and no other file written."""
    (tmp_path / "plan.json").mkdir()
    outcome = run("plan", "car", "--board", "kv260", "--out", tmp_path)
    assert outcome.code == 2 and "plan.json: is a directory" in outcome.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["plan.json"]
