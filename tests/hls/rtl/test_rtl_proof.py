"""Bounded proofs of the DRS unit: each computing row once a pair, no replayed row, an end; and faults refuted.

A decision of at most R rows, P pairs and G groups ends, the waves taken, R + G + 2 + ceil(R P / G) clocks after its
start, and a clock later for each that the receiver or ap_ce holds it up.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fastcar.hls.checks import CheckError, prove
from fastcar.hls.checks.proof import drs_clocks
from fastcar.hls.checks.tools import RTL

ASSERTIONS = {
    "starts",
    "served_once",
    "no_replay",
    "skipped",
    "last",
    "none_after_last",
    "complete",
    "cost",
    "finishes",
    "idle_again",
}
NAMES = ("ROWS", "GROUPS", "MAX_PAIRS", "STALLS")
SIZE = (4, 2, 2, 0)  # enough for every fault
PARAMETERS = dict(zip(NAMES, SIZE, strict=True))


def mutated(folder: Path, before: str, after: str) -> Path:
    text = (RTL / "drs_unit.sv").read_text()
    assert text.count(before) == 1
    shutil.copy(RTL / "drs_unit_properties.sv", folder)
    (folder / "drs_unit.sv").write_text(text.replace(before, after))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    "size",
    [(5, 1, 2, 1), (4, 3, 4, 1), (8, 3, 4, 0)],
    ids=lambda size: "-".join(map(str, size)),
)
def test_every_decision_of_a_small_unit(size: tuple[int, int, int, int]) -> None:
    """Rows, groups, pairs, stalls: all decisions up to that size, from any idle state."""
    proof = prove("drs_unit", dict(zip(NAMES, size, strict=True)), drs_clocks(*size))
    assert set(proof.assertions) == ASSERTIONS
    assert proof.clocks == drs_clocks(*size)


@pytest.mark.parametrize(
    ("before", "after", "refuted"),
    [
        ("wire wraps = moved >= ", "wire wraps = moved > ", {"last", "no_replay", "served_once"}),
        ("COUNT_BITS'(step_entry) + 1'b1 == entries", "COUNT_BITS'(step_entry) == entries", {"last", "served_once"}),
        ("wire computes = !fixed || flags[at];", "wire computes = 1'b1;", {"no_replay"}),
        ("wire computes = !fixed || flags[at];", "wire computes = !fixed;", {"served_once"}),
        ("assign skip           = count == '0;", "assign skip           = entries == '0;", {"skipped"}),
        ("          if (last) state <= DRAIN;\n", "", {"none_after_last", "finishes"}),
        ("if (ap_continue) state <= IDLE;", "if (ap_continue) state <= DONE;", {"idle_again"}),
        ("if (row == last_row) state", "if (row > last_row) state", {"served_once", "cost", "last", "finishes"}),
    ],
)
def test_a_fault_is_refuted(tmp_path: Path, before: str, after: str, refuted: set[str]) -> None:
    with pytest.raises(CheckError) as caught:
        prove("drs_unit", PARAMETERS, drs_clocks(*SIZE), rtl=mutated(tmp_path, before, after))
    assert caught.value.found.partition(" ")[0] in refuted
    assert "index" in caught.value.found


def test_a_void_proof_is_refused(tmp_path: Path) -> None:
    """A unit that is never idle fulfils every property, since it never starts."""
    rtl = mutated(tmp_path, "state == IDLE && !ap_start;", "1'b0;")
    with pytest.raises(CheckError, match="no run fulfils the assumptions"):
        prove("drs_unit", PARAMETERS, drs_clocks(*SIZE), rtl=rtl)
