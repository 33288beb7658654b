"""RTL equal to the C++ models, clock by clock; and faults in the RTL seen."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fastcar.hls.checks import CheckError, cosimulate
from fastcar.hls.checks.tools import RTL

MILLION = 1_000_000


def mutated(folder: Path, file: str, before: str, after: str) -> Path:
    """A copy of the RTL with one place changed."""
    for path in RTL.glob("*.sv"):
        shutil.copy(path, folder)
    text = (folder / file).read_text()
    assert text.count(before) == 1
    (folder / file).write_text(text.replace(before, after))
    return folder


@pytest.mark.slow
def test_processing_group() -> None:
    result = cosimulate("processing_group", MILLION)
    assert result.vectors == MILLION
    assert result.comparisons == 2 * MILLION
    assert result.clocks > MILLION  # some were stalls


@pytest.mark.slow
@pytest.mark.parametrize(
    ("groups", "decisions"),
    [(8, 200_000), (3, 100_000), (1, 100_000), pytest.param(8, MILLION, marks=pytest.mark.hard)],
)
def test_drs_unit(groups: int, decisions: int) -> None:
    """A decision is one vector; every item of its waves is compared."""
    result = cosimulate("drs_unit", decisions, parameters={"GROUPS": groups})
    assert result.vectors == decisions
    assert result.comparisons > 34 * decisions  # skip, count, 32 mapping registers, and the items


@pytest.mark.slow
@pytest.mark.parametrize(
    ("unit", "file", "before", "after", "named"),
    [
        ("processing_group", "processing_group.sv", "high[c] + FIELD'({1'b0, low[c][FIELD-1]})", "high[c]", "sum1"),
        ("processing_group", "processing_group.sv", "(ap_done && !ap_continue)", "(ap_done && ap_continue)", "ap_"),
        ("drs_unit", "drs_unit.sv", "wire wraps = moved >= ", "wire wraps = moved > ", "wave"),
    ],
)
def test_a_fault_is_seen(tmp_path: Path, unit: str, file: str, before: str, after: str, named: str) -> None:
    """The borrow of the packed sums, a result held back, the wrap of a group's entry."""
    rtl = mutated(tmp_path, file, before, after)
    with pytest.raises(CheckError, match=named):
        cosimulate(unit, 50_000, parameters={"GROUPS": 3} if unit == "drs_unit" else {}, rtl=rtl)
