"""``fastcar overlay`` as a user runs it, with tools that are not the vendor's."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from cli_runs import Outcome, run
from fake_vendor import FakeVendor

import fastcar
from fastcar.overlays.flow import layout, phases
from fastcar.overlays.flow.choose import choose_engine
from fastcar.overlays.flow.layout import Build
from fastcar.overlays.flow.phases import PHASES

ROOT = Path(fastcar.__file__).parent
TOOLS = [phase.name for phase in PHASES if phase.tool != "python"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of the build, in an empty current folder; the scripts are stand-ins and no tool is on the path."""
    scripts = tmp_path / "tcl"
    scripts.mkdir()
    for phase in PHASES:
        if phase.tool in ("hls", "vivado"):
            (scripts / f"{phase.name}.tcl").touch()
    for module in (layout, phases):
        monkeypatch.setattr(module, "TCL", scripts)
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    return work / "built"


@pytest.fixture
def vendor(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeVendor:
    fake = FakeVendor(tmp_path / "vendor")
    fake.produce(Build(*choose_engine("kv260", None, {}), folder))
    monkeypatch.setenv("PATH", fake.path)
    return fake


def document(outcome: Outcome) -> dict:
    """The one JSON document on stdout."""
    assert outcome.code == 0, outcome.stderr
    return json.loads(outcome.stdout)


def test_a_dry_run_prints_every_command_and_does_nothing(folder: Path) -> None:
    outcome = run("overlay", "build", "--board", "kv260", "--out", folder, "--dry-run")
    assert outcome.code == 0
    assert not folder.exists() and list(folder.parent.iterdir()) == []
    for name in TOOLS:
        assert f"\n# {name}: " in outcome.stdout
    assert f"vitis-run --mode hls --tcl {folder}/logs/csynth.tcl" in outcome.stdout
    assert f"vivado -mode batch -nojournal -nolog -source {folder}/logs/bitstream.tcl" in outcome.stdout
    assert "dtc -@ " in outcome.stdout and "-part xck26-sfvc784-2LV-c" in outcome.stdout
    assert "vivado is not on the path" in outcome.stderr


def test_a_dry_run_as_json(folder: Path) -> None:
    result = document(run("overlay", "build", "--board", "zcu104", "--clock", "250", "--dry-run", "--json"))
    assert result["engine"] == "zcu104-clockmhz250"
    assert result["folder"] == str(folder.parent / "build/overlays" / f"zcu104-clockmhz250-{result['build_id']}")
    by_name = {step["phase"]: step for step in result["phases"]}
    assert "device_tree" not in by_name  # no Kria
    assert all(step["runs"] for step in by_name.values())
    arguments = by_name["csynth"]["arguments"]
    assert arguments[arguments.index("-clock_ns") + 1] == "4.000000"
    assert by_name["configure"]["command"] == []
    assert list(folder.parent.iterdir()) == []


def test_without_the_tools_nothing_is_done(folder: Path) -> None:
    outcome = run("overlay", "build", "--board", "zcu102", "--out", folder)
    assert outcome.code == 2 and outcome.stdout == ""
    assert "vitis_hls (2022.2 to 2024.1) is not on the path; vivado is not on the path" in outcome.error
    assert "the Enterprise edition of Vivado" in outcome.error and "settings64.sh" in outcome.error
    assert not folder.exists()


def test_build_and_show(folder: Path, vendor: FakeVendor) -> None:
    outcome = run("overlay", "build", "--board", "kv260", "--out", folder)
    assert outcome.code == 0, outcome.stderr
    assert vendor.journal == TOOLS
    assert "fastcar.bit" in outcome.stdout and "fastcar overlay show" in outcome.stdout
    again = document(run("overlay", "build", "--engine", "kv260", "--out", folder, "--json"))
    assert [step["phase"] for step in again["phases"] if step["ran"]] == ["configure", "collect"]
    shown = run("overlay", "show", folder)
    for text in ("81234", "1248", "303.8 MHz", "7.125 W", "II of quant_linear_2_2_s, beat", "Vivado 2022.2"):
        assert text in shown.stdout, text
    assert document(run("overlay", "show", folder, "--json")) == json.loads(
        (folder / "artifacts/overlay.json").read_text()
    )


def test_a_failed_phase_exits_with_1_and_the_end_of_its_log(folder: Path, vendor: FakeVendor) -> None:
    vendor.behave("timing", "fail")
    outcome = run("overlay", "build", "--board", "kv260", "--out", folder)
    assert outcome.code == 1
    said = "vivado ended with exit code 1: ERROR: [Fake 17-69] timing: not enough luck"
    assert outcome.stderr.splitlines()[-1].startswith(f"fastcar: timing: {said}")
    assert "INFO: [Fake 1-1] timing begins" in outcome.stderr
    vendor.behave("timing", None)
    vendor.forget()
    assert run("overlay", "build", "--board", "kv260", "--out", folder).code == 0
    assert vendor.journal == TOOLS[TOOLS.index("timing") :]


def test_only_a_phase(folder: Path, vendor: FakeVendor) -> None:
    assert "not done before it" in run("overlay", "build", "--board", "kv260", "--out", folder, "--only", "cosim").error
    assert run("overlay", "build", "--board", "kv260", "--out", folder, "--only", "configure").code == 0
    assert vendor.journal == [] and (folder / "config/engine.toml").is_file()
    steps = document(
        run("overlay", "build", "--board", "kv260", "--out", folder, "--only", "csim", "--dry-run", "--json")
    )["phases"]
    assert [step["phase"] for step in steps if step["runs"]] == ["csim"]


def test_an_engine_that_does_not_fit(folder: Path, vendor: FakeVendor) -> None:
    outcome = run("overlay", "build", "--board", "kv260", "--groups", "16", "--out", folder)
    *lines, told = outcome.stderr.splitlines()
    assert outcome.code == 2 and told.endswith("Set groups to 2, the most that fit.")
    assert re.search(r"^total +[\d.]+ +[\d.]+ +[\d.]+ +[\d.]+$", "\n".join(lines), re.M), "unit by unit, a line each"
    assert not folder.exists() and vendor.journal == []


def test_an_output_folder_that_cannot_be_written(folder: Path, vendor: FakeVendor) -> None:
    folder.touch()
    outcome = run("overlay", "build", "--board", "kv260", "--out", folder)
    assert outcome.code == 2 and "is a file" in outcome.error


def test_show_what_is_not_there(folder: Path) -> None:
    outcome = run("overlay", "show", folder)
    assert outcome.code == 2 and "overlay.json" in outcome.error


def test_an_unknown_phase(folder: Path, vendor: FakeVendor) -> None:
    assert "one of configure, csim" in run("overlay", "build", "--board", "kv260", "--from", "route").error


def test_make_calls_the_same(tmp_path: Path) -> None:
    """From a checkout of any name, with the command given for the environment's."""
    log = tmp_path / "log"
    command = tmp_path / "fastcar"
    command.write_text(f'#!/bin/sh\npwd > {log}\necho "$@" >> {log}\n')
    command.chmod(0o755)
    make = ["make", "-C", ROOT / "overlays", "BOARD=zcu104", "OPTIONS=--groups 4 --dry-run", f"FASTCAR={command}"]
    done = subprocess.run(make, capture_output=True, text=True, env={**os.environ, "MAKEFLAGS": ""})
    assert done.returncode == 0, done.stderr
    assert log.read_text().splitlines() == [str(ROOT), "overlay build --board zcu104 --groups 4 --dry-run"]


def test_make_with_the_file_of_a_board(tmp_path: Path) -> None:
    """Its path may have spaces."""
    log, command = tmp_path / "log", tmp_path / "fastcar"
    command.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {log}\n')
    command.chmod(0o755)
    make = ["make", "-C", ROOT / "overlays", "BOARD=/my boards/new one.toml", f"FASTCAR={command}"]
    subprocess.run(make, capture_output=True, check=True, env={**os.environ, "MAKEFLAGS": ""})
    assert log.read_text().splitlines() == ["overlay", "build", "--board", "/my boards/new one.toml"]
