"""``fastcar boards``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_runs import run
from packed_bundle import packed_copy

from fastcar.boards import board_names, load_board
from fastcar.overlays import engine_names, load_engine


@pytest.fixture(scope="module")
def packed(bundle_w8a8: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return packed_copy(bundle_w8a8, tmp_path_factory.mktemp("packed") / "kv260", load_engine("kv260"))


def boards_json(*arguments: object) -> dict[str, dict]:
    outcome = run("boards", *arguments, "--json")
    assert outcome.code == 0 and outcome.stderr == "", outcome.stderr
    return {entry["name"]: entry for entry in json.loads(outcome.stdout)["boards"]}


def test_every_board_with_its_facts() -> None:
    found = boards_json()
    assert list(found) == list(board_names())
    for name, entry in found.items():
        board = load_board(name)
        assert entry["memory_bytes"] == board.ddr.bytes and entry["sustained_gb_s"] == board.ddr.sustained_gb_s
        assert entry["resources"]["dsp"] == board.resources.dsp and "bundle" not in entry
        assert entry["cma_bytes"] == (board.linux.cma_bytes if board.linux else None)
    assert found["u280"]["estimates_only"] and found["u280"]["engines"] == []
    assert sorted(name for entry in found.values() for name in entry["engines"]) == sorted(engine_names())


def test_the_table() -> None:
    outcome = run("boards")
    assert outcome.code == 0
    for text in (*board_names(), "estimates only", "not known", "1000 MB", "19.2, 16.3", "none"):
        assert text in outcome.stdout, text


def test_a_packed_bundle(packed: Path) -> None:
    found = boards_json(packed)
    kv260 = found["kv260"]["bundle"]
    assert kv260["runs"] and kv260["packed_for"] == "kv260" and kv260["steps"] == [] and kv260["reasons"] == []
    assert kv260["memory"]["total"] == sum(kv260["memory"][part] for part in ("program", "weights", "state"))
    assert found["zcu104"]["bundle"]["steps"] == ["export with --board zcu104: it is packed for kv260"]
    assert not found["u280"]["bundle"]["runs"] and "no overlay" in found["u280"]["bundle"]["reasons"][0]
    assert found["ultra96v2"]["bundle"]["reasons"] == ["no engine for this board comes with the project"]


def test_its_table_has_a_verdict_and_words(packed: Path) -> None:
    text = " ".join(run("boards", packed).stdout.replace("│", " ").split())
    for words in (
        "yes packed for kv260; ",
        "MiB of contiguous memory",
        "yes, after export with --board zcu102",
        "no no",
    ):
        assert words in text, words


def test_a_bundle_that_is_not_packed(bundle_w8a8: Path) -> None:
    found = boards_json(bundle_w8a8)
    assert found["kr260"]["bundle"]["steps"] == ["export with --board kr260"]
    assert found["kr260"]["bundle"]["memory"]["weights"] > 0


def test_no_bundle(tmp_path: Path) -> None:
    outcome = run("boards", tmp_path / "none")
    assert outcome.code == 2 and "no such folder or file" in outcome.error
