"""The checker as a whole: the project's kernels are clean, and the command says so in its exit status."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fastcar.hls.lint import Finding, kernels, lint_files
from fastcar.toolkit.errors import UsageError

BAD = "void f(int n) {\n    for (int i = 0; i < n; i++) g(1.0);\n}\n"


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fastcar.hls.lint", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


def test_kernels_are_clean() -> None:
    paths = kernels()
    assert paths
    assert [str(finding) for finding in lint_files(paths)] == []


def test_a_finding_is_one_sentence_with_its_place() -> None:
    finding = Finding("a.h", 3, "loop-label", "loop has no name", "`name: for (...)`", "Give it a label")
    assert str(finding) == "a.h:3: loop-label: loop has no name; expected `name: for (...)`. Give it a label"


def test_folders_are_searched_and_findings_ordered(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    for name in ("b.cpp", "a.h", "inner/c.hpp", "notes.txt"):
        (tmp_path / name).write_text(BAD)
    findings = lint_files([tmp_path, tmp_path / "a.h"])
    assert [(Path(finding.path).name, finding.line, finding.rule) for finding in findings] == [
        (name, 2, rule)
        for name in ("a.h", "b.cpp", "c.hpp")
        for rule in ("loop-bound", "loop-label", "loop-schedule", "subset")
    ]


def test_a_wrong_path_is_the_users_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nowhere.h"):
        lint_files([tmp_path / "nowhere.h"])


def test_the_command(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.h", tmp_path / "bad.h"
    good.write_text("void f() {}\n")
    bad.write_text(BAD)
    assert (run(good).returncode, run(good).stdout) == (0, "")
    result = run(good, bad)
    assert result.returncode == 1
    assert result.stdout.splitlines() == [str(finding) for finding in lint_files([bad])]
    assert result.stderr == "4 findings\n"
    missing = run(tmp_path / "nowhere.h")
    assert (missing.returncode, missing.stdout) == (2, "")
    assert "nowhere.h" in missing.stderr
