"""``fastcar doctor``: what it prints, and its exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_runs import Outcome, run
from machines import kria_in
from packed_bundle import packed_copy

from fastcar.overlays import load_engine
from fastcar.toolkit.cli import doctor

Examined = Callable[..., Outcome]


@pytest.fixture
def on_kria(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Examined:
    """The command on a board that is not there; keywords change its machine."""
    make = kria_in(tmp_path)

    def command(*arguments: object, **changed: object) -> Outcome:
        monkeypatch.setattr(doctor, "Machine", lambda: make(**changed))
        return run("doctor", *arguments)

    return command


def test_a_board_in_order(on_kria: Examined) -> None:
    outcome = on_kria()
    assert outcome.code == 0, outcome.stdout
    assert outcome.stdout.startswith("board kv260\n") and "ina260_u14" in outcome.stdout
    assert "no problem found" in outcome.stderr


def test_a_fault_exits_with_1_and_says_how_to_mend_it(on_kria: Examined) -> None:
    outcome = on_kria(user=1000, environment={"BOARD": "KV260"})
    assert outcome.code == 1 and "2 to mend" in outcome.stderr
    lines = [line for line in outcome.stderr.splitlines() if line.startswith("problem: ")]
    assert [line.split(": ")[1] for line in lines] == ["permissions", "XILINX_XRT"]
    assert "export XILINX_XRT=/usr" in lines[1]


def test_json(on_kria: Examined) -> None:
    outcome = on_kria("--json", user=1000)
    result = json.loads(outcome.stdout)
    assert outcome.code == 1 and outcome.stderr == ""
    assert (result["machine"], result["board"], result["problems"]) == ("board", "kv260", 1)
    (check,) = [check for check in result["checks"] if check["status"] == "problem"]
    assert set(check) == {"name", "status", "found", "fix"} and check["name"] == "permissions"


def test_a_bundle(on_kria: Examined, bundle_w8a8: Path, tmp_path: Path) -> None:
    packed = packed_copy(bundle_w8a8, tmp_path / "packed", load_engine("kv260"))
    outcome = on_kria(packed)
    assert outcome.code == 0 and "packed for engine kv260" in outcome.stdout
    outcome = on_kria(bundle_w8a8)
    assert outcome.code == 1 and "On the workstation: export with --board kv260" in outcome.stderr
    outcome = on_kria(tmp_path / "none")
    assert outcome.code == 2 and "no such folder or file" in outcome.error


def test_this_machine() -> None:
    """Whatever is found here: a report, and the exit code that goes with it."""
    outcome = run("doctor", "--json")
    result = json.loads(outcome.stdout)
    assert outcome.code == (1 if result["problems"] else 0)
    assert result["checks"][0]["name"] == "Python"
