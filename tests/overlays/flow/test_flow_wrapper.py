"""The wrapper that gives a script its arguments, run by a plain tclsh."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from fastcar.overlays.flow.tcl import argument_words, tcl_list, wrapper

needs_tclsh = pytest.mark.skipif(shutil.which("tclsh") is None, reason="no tclsh")
WORDS = ["plain", "", "two words", "{", "}", "a}b{", "$x", "[exit 7]", 'quo"te', "back\\", "a;b", "#", "naïve", "a\nb"]


def tclsh(script: str, folder: Path) -> subprocess.CompletedProcess:
    path = folder / "run.tcl"
    path.write_text(script, "utf-8")
    return subprocess.run(["tclsh", "-encoding", "utf-8", path], capture_output=True, text=True)


@needs_tclsh
def test_lists_come_apart_as_they_were(tmp_path: Path) -> None:
    script = f"fconfigure stdout -encoding utf-8\nforeach word [list {tcl_list(WORDS)}] {{ puts -nonewline <$word> }}"
    assert tclsh(script, tmp_path).stdout == "".join(f"<{word}>" for word in WORDS)


@needs_tclsh
def test_a_script_gets_its_arguments(tmp_path: Path) -> None:
    inner = tmp_path / "inner.tcl"
    inner.write_text('puts "$::argc: $::argv"; puts [lindex [dict get $::argv -sources] 1]')
    arguments = {"part": "xck26", "clock_ns": 10 / 3, "jobs": 2, "sources": (Path("/a b/c"), Path("/d"))}
    done = tclsh(wrapper(inner, arguments), tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    first, second = done.stdout.splitlines()
    assert first.startswith("8: -part xck26 -clock_ns 3.333333 -jobs 2 -sources ") and second == "/d"
    assert argument_words(arguments)[:4] == ["-part", "xck26", "-clock_ns", "3.333333"]


@needs_tclsh
@pytest.mark.parametrize(("text", "code"), [("exit 1", 1), ("exit 0", 0), ("return", 0), ("no_such_command", 1)])
def test_its_end_is_the_tools_end(tmp_path: Path, text: str, code: int) -> None:
    inner = tmp_path / "inner.tcl"
    inner.write_text(text)
    done = tclsh(wrapper(inner, {}), tmp_path)
    assert done.returncode == code
    if text.startswith("no_"):
        assert done.stderr.startswith('ERROR: invalid command name "no_such_command"') and "inner.tcl" in done.stderr
