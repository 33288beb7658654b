"""Tools that hang, and runs that are ended: nothing is left running, and the next run goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fake_vendor import FakeVendor

from fastcar.overlays.flow.layout import Build
from fastcar.overlays.flow.plan import Choice
from fastcar.overlays.flow.process import complaints, last_lines, run_logged
from fastcar.overlays.flow.run import run
from fastcar.overlays.flow.tools import find_tools

RUN = """
import sys
from pathlib import Path
from fastcar.overlays.flow import layout, phases
from fastcar.overlays.flow.choose import choose_engine
from fastcar.overlays.flow.plan import Choice
from fastcar.overlays.flow.run import run
from fastcar.overlays.flow.tools import find_tools
layout.TCL = phases.TCL = Path(sys.argv[1])
build = layout.Build(*choose_engine("kv260", None, {}), Path(sys.argv[2]))
run(build, find_tools(), Choice(), lambda *stage: None)
"""
SECONDS = 30


def wait_for(path: Path) -> int:
    """The number in a file that is to appear."""
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        if path.exists() and (text := path.read_text().strip()):
            return int(text)
        time.sleep(0.02)
    raise AssertionError(f"no {path}")


def gone(pid: int) -> bool:
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        stat = Path(f"/proc/{pid}/stat")
        try:
            if stat.read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_nothing_outlives_the_run(build: Build, vendor: FakeVendor, scripts: Path, number: signal.Signals) -> None:
    """Not even what the tool started, and not even when there was no time to end it."""
    vendor.behave("csynth", "hang")
    process = subprocess.Popen([sys.executable, "-c", RUN, scripts, build.folder], stderr=subprocess.DEVNULL)
    child = wait_for(vendor.root / "child")
    process.send_signal(number)
    process.wait(SECONDS)
    assert gone(child)
    assert not build.stamp("csynth").exists()
    vendor.behave("csynth", None)
    vendor.forget()
    run(build, find_tools(), Choice(), lambda *stage: None)
    assert vendor.journal[:2] == ["csynth", "cosim"]


def test_what_a_tool_leaves_running_is_ended(tmp_path: Path) -> None:
    command = ["/bin/sh", "-c", f"sleep 600 & echo $! > {tmp_path}/child; exit 3"]
    assert run_logged(command, tmp_path / "log", tmp_path) == 3
    assert gone(wait_for(tmp_path / "child"))


def test_both_streams_go_into_the_log(tmp_path: Path) -> None:
    command = ["/bin/sh", "-c", "echo one; echo ERROR: two >&2; kill -9 $$"]
    assert run_logged(command, tmp_path / "logs/log", tmp_path) == -signal.SIGKILL
    assert last_lines(tmp_path / "logs/log") == "one\nERROR: two"
    assert complaints(tmp_path / "logs/log") == ["ERROR: two"]


def test_the_end_of_a_long_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    end = b"\n\xff\nCRITICAL WARNING: not this\nERROR: this\nlast\n"
    log.write_bytes(b"ERROR: of long ago\n" + b"x" * (2 << 20) + end)
    assert complaints(log) == ["ERROR: this"]
    assert last_lines(log, 1) == "last"
    assert last_lines(tmp_path / "none") == "" and complaints(tmp_path / "none") == []


def test_lines_that_no_terminal_takes(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("ERROR: \x1b[31m" + "x" * 100_000 + "\nERROR: \x00 short\n")
    first, second = complaints(log)
    assert len(first) < 510 and first.startswith("ERROR: ?[31mxx") and first.endswith(" ...")
    assert second == "ERROR: ? short"
    assert len(last_lines(log)) < 600


def test_the_guard_ends_with_the_tool(tmp_path: Path) -> None:
    before = {int(pid) for pid in os.listdir("/proc") if pid.isdigit()}
    run_logged(["/bin/true"], tmp_path / "log", tmp_path)
    for pid in {int(pid) for pid in os.listdir("/proc") if pid.isdigit()} - before:
        try:
            if f"PPid:\t{os.getpid()}\n" in Path(f"/proc/{pid}/status").read_text():  # not those of other tests
                assert b"read word" not in Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
