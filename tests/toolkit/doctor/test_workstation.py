"""A workstation in order, and what is missing on another."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest
from machines import Make, Packages, one

from fastcar.toolkit.doctor import examine
from fastcar.toolkit.doctor.machine import Machine, run_command
from fastcar.toolkit.doctor.model import Check, run_probes


@pytest.fixture(autouse=True)
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Arithmetic headers and a cache folder of the test's own: the compiler's part reads the process's environment."""
    headers = tmp_path / "ap_types"
    headers.mkdir()
    (headers / "ap_int.h").touch()
    monkeypatch.setenv("FASTCAR_AP_TYPES", str(headers))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def test_in_order(workstation: Make, surroundings: Path) -> None:
    found = examine(workstation())
    assert (found.machine, found.name, found.problems) == ("workstation", None, 0)
    assert {check.name: check.found for check in found.checks if check.status == "ok"} == {
        "Python": "3.11.7",
        "fastcar-edge 0.1.0": "numpy 1.26.4, click 8.5.1",
        "export of a checkpoint": "torch 2.13.0+cpu, onnx 1.22.0",
        "generation with onnxruntime": "onnxruntime 1.32.0",
        "C++ compiler": "g++ (Debian 12.2.0-14) 12.2.0",
        "arithmetic headers": str(surroundings / "ap_types"),
        "compiled engines": f"{surroundings}/cache/fastcar can be written",
        "XILINX_XRT": "not set, as it is to be without a board",
        "deployment": "ssh and rsync are there",
    }
    notes = {check.name for check in found.checks if check.status == "note"}
    assert notes == {"generation on a board, or on an emulated one", "AMD Vivado and Vitis"}


def test_without_its_programs_nothing_is_broken(workstation: Make) -> None:
    examined = examine(workstation(environment={"PATH": ""}))
    assert examined.problems == 0
    assert one(examined, "C++ compiler").fix.startswith("apt-get install g++")
    assert one(examined, "deployment").fix == "apt-get install openssh-client rsync"
    assert one(examined, "deployment").found == "no ssh and no rsync: no `fastcar deploy`"


def test_a_compiler_that_does_not_work(workstation: Make) -> None:
    check = one(examine(workstation(run=lambda command: None)), "C++ compiler")
    assert check.status == "problem" and "Install g++ 9 or newer" in check.fix


def test_another_compiler(workstation: Make) -> None:
    machine = workstation(environment={"PATH": "", "CXX": "clang++"})
    assert "no clang++" in one(examine(machine), "C++ compiler").found


def test_headers_that_are_not_there(workstation: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FASTCAR_AP_TYPES", str(tmp_path))
    check = one(examine(workstation()), "arithmetic headers")
    assert check.status == "note" and "Correct it, or unset it" in check.fix
    check = one(examine(workstation(environment={"FASTCAR_AP_TYPES": "x"})), "arithmetic headers")
    assert check.status == "problem"


def test_headers_that_are_not_installed(workstation: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    from fastcar.hls import build

    monkeypatch.delenv("FASTCAR_AP_TYPES")
    monkeypatch.delenv("XILINX_HLS", raising=False)
    monkeypatch.setattr(build.importlib.util, "find_spec", lambda name: None)
    check = one(examine(workstation()), "arithmetic headers")
    assert check.status == "note" and check.fix == "pip install --no-deps hls4ml==1.3.0"


def test_a_cache_that_cannot_be_made(workstation: Make, surroundings: Path) -> None:
    (surroundings / "cache").touch()  # a file, which root cannot write a folder into, either
    check = one(examine(workstation()), "compiled engines")
    assert check.status == "problem" and "XDG_CACHE_HOME" in check.fix
    (surroundings / "cache").unlink()
    check = one(examine(workstation(disk_free=lambda path: 1 << 20)), "compiled engines")
    assert check.status == "problem" and "the disk is full" in check.found and "XDG_CACHE_HOME" in check.fix


def test_the_variable_of_a_board(workstation: Make) -> None:
    machine = workstation(environment={"XILINX_XRT": "/usr", "PATH": ""})
    assert one(examine(machine), "XILINX_XRT").status == "note"
    machine.packages.versions.update({"pynq": "4.0.0", "setuptools": "80.0.0"})
    check = one(examine(machine), "XILINX_XRT")
    assert check.status == "problem" and check.fix == "unset XILINX_XRT"


def test_tools_of_amd(workstation: Make, tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "vivado").write_text("#!/bin/sh\n")
    (tools / "vivado").chmod(0o755)
    check = one(examine(workstation(environment={"PATH": str(tools)})), "AMD Vivado and Vitis")
    assert (check.status, check.found) == ("ok", str(tools / "vivado"))
    gone = {"PATH": str(tools), "XILINX_VIVADO": str(tmp_path / "gone")}
    check = one(examine(workstation(environment=gone)), "AMD Vivado and Vitis")
    assert check.status == "problem" and "unset XILINX_VIVADO" in check.fix


def test_a_probe_that_fails_is_a_note_and_the_others_run(workstation: Make) -> None:
    def some_thing(machine: Machine):
        yield Check("a", "ok", "found")
        raise PermissionError(13, "Permission denied")

    def other(machine: Machine):
        return [Check("b", "ok", "found")]

    checks = list(run_probes((some_thing, other), workstation()))
    assert [(check.name, check.status) for check in checks] == [("some thing", "note"), ("b", "ok")]
    assert "PermissionError" in checks[0].found


def test_disorder_everywhere_raises_nothing(workstation: Make, kria: Make) -> None:
    """Nothing on the path, every file unreadable text, packages that cannot be asked."""

    class Broken(Packages):
        def version(self, name: str) -> str:
            raise OSError("metadata is gone")

    def fails(*arguments: object) -> str:
        raise RuntimeError("no")

    for make in (workstation, kria):
        machine = make(packages=Broken({}), run=fails, disk_free=fails)
        for file in machine.root.rglob("*"):
            if file.is_file() and "device-tree" not in str(file):
                file.write_bytes(b"\xff\xfe\0:")
        assert len(examine(machine).checks) > 5


def python(code: str, *arguments: object) -> list[str]:
    return [sys.executable, "-c", code, *map(str, arguments)]


SLEEPER = """
import subprocess, sys
child = subprocess.Popen(["sleep", "60"])
with open(sys.argv[1], "w") as file:
    file.write(str(child.pid))
child.wait()
"""


class TestRunCommand:
    def test_output(self) -> None:
        assert run_command(python("import sys; print('out'); print('err', file=sys.stderr)")) == "out\n"

    def test_failure(self) -> None:
        for command in (python("print('x'); raise SystemExit(3)"), ["no-such-program-at-all"], ["a\0b"]):
            assert run_command(command) is None

    def test_one_that_hangs_is_ended_with_its_children(self, tmp_path: Path) -> None:
        pid = tmp_path / "pid"
        began = time.monotonic()
        assert run_command(python(SLEEPER, pid), seconds=1.5) is None
        assert time.monotonic() - began < 6
        child = Path("/proc") / pid.read_text() / "stat"
        deadline = time.monotonic() + 2
        while runs(child) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not runs(child)

    def test_one_that_reads_gets_nothing_to_read(self) -> None:
        assert run_command(["cat"]) == ""


def runs(stat: Path) -> bool:
    try:
        return stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_this_machine() -> None:
    machine = Machine()
    assert machine.text("proc/no/such/file") is None and machine.files("no*such*file") == []
    assert machine.disk_free(Path.cwd()) > 0
    assert len(examine(machine).checks) > 5
