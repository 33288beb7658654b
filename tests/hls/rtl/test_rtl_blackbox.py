"""The descriptions for Vitis HLS: complete, and of the modules and functions they name."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from fastcar.hls.checks import BENCHES, CheckError, read_blackbox
from fastcar.hls.checks.tools import RTL

PORT = re.compile(r"^\s*(?:input|output)\s+(?:wire|logic)\b[^,/]*?(\w+)\s*,?\s*$", re.MULTILINE)
# Of a decision: rows + groups + 2 clocks and a wave a clock, at 32 rows, 8 groups, 64 pairs.
LONGEST_DECISION = 32 + 8 + 2 + 32 * 64 // 8


@pytest.mark.parametrize("unit", BENCHES)
def test_description_has_the_modules_ports(unit: str) -> None:
    blackbox = read_blackbox(unit)
    header = (RTL / blackbox.rtl[0]).read_text().partition(");\n")[0]
    assert f"module {blackbox.module} " in header
    assert sorted(PORT.findall(header)) == sorted(blackbox.ports)


@pytest.mark.parametrize("unit", BENCHES)
def test_description_has_the_functions_arguments(unit: str) -> None:
    blackbox = read_blackbox(unit)
    source = (RTL / blackbox.function_file).read_text()
    (arguments,) = re.findall(rf"^void {blackbox.module}\((.*?)\) {{", source, re.MULTILINE | re.DOTALL)
    names = re.findall(r"(\w+)(?=,\s+\w+(?:::|<|&| )|$)", arguments)
    assert names == list(blackbox.arguments)


def test_figures() -> None:
    group, drs = read_blackbox("processing_group"), read_blackbox("drs_unit")
    assert (group.latency, group.interval, group.resources["DSP"]) == (10, 1, 16)
    assert (drs.latency, drs.interval, drs.resources["DSP"]) == (LONGEST_DECISION, 0, 0)


@pytest.mark.parametrize(
    ("key", "value", "complaint"),
    [
        ("rtl_files", ["absent.sv"], "no absent.sv"),
        ("rtl_top_module_name", "other", "two names"),
        ("rtl_performance", {"latency": "10"}, "rtl_performance differ in II"),
        ("c_parameters", [{"c_name": "x", "c_port_direction": "in", "rtl_ports": {"data_write_out": "x"}}], "x: "),
    ],
)
def test_a_wrong_description_is_refused(tmp_path: Path, key: str, value: object, complaint: str) -> None:
    for file in RTL.iterdir():
        shutil.copy(file, tmp_path)
    path = tmp_path / "processing_group.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    with pytest.raises(CheckError, match=complaint):
        read_blackbox("processing_group", tmp_path)
