"""A bundle on a board: its engine, and room for a clip by what is free now."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_board import MEMORY, write
from machines import Make, one
from packed_bundle import packed_copy

from fastcar.overlays import load_engine
from fastcar.toolkit.board.fit import clip_memory
from fastcar.toolkit.bundle.bundle import Bundle
from fastcar.toolkit.doctor import examine


@pytest.fixture(scope="module")
def packed(bundle_w8a8: Path, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return Bundle.open(packed_copy(bundle_w8a8, tmp_path_factory.mktemp("packed") / "kv260", load_engine("kv260")))


def test_there_is_room(kria: Make, packed: Bundle) -> None:
    examined = examine(kria(), packed)
    assert examined.problems == 0
    assert one(examined, "bundle kv260").found == "packed for engine kv260"
    needed = clip_memory(packed, packed.manifest.engine).total / 2**20
    assert one(examined, "memory for the bundle").found == f"{needed:.1f} MiB for a clip with guidance, 958 MiB free"


@pytest.mark.parametrize(
    ("total_kb", "fix"), [(16, "Boot with cma=64M or more"), (1_024_000, "in use: end the programs")]
)
def test_there_is_none(kria: Make, packed: Bundle, total_kb: int, fix: str) -> None:
    machine = kria()
    write(machine.root, "proc/meminfo", MEMORY.replace("1024000", str(total_kb)).replace("981120", "4"))
    examined = examine(machine, packed)
    check = one(examined, "memory for the bundle")
    assert check.status == "problem" and fix in check.fix and examined.problems == 1


def test_packed_for_another_board(kria: Make, packed: Bundle) -> None:
    machine = kria()
    machine.environment["BOARD"] = "ZCU104"
    check = one(examine(machine, packed), "bundle kv260")
    assert (check.status, check.found) == ("problem", "not packed for zcu104")
    assert check.fix.startswith("On the workstation: export with --board zcu104")


def test_a_board_without_an_engine(kria: Make, packed: Bundle) -> None:
    machine = kria()
    machine.environment["BOARD"] = "Ultra96-V2"
    check = one(examine(machine, packed), "bundle kv260")
    assert check.status == "problem" and "no engine for this board" in check.found


def test_a_board_that_is_not_known(kria: Make, packed: Bundle) -> None:
    machine = kria(environment={"XILINX_XRT": "/usr"})
    for path in ("etc/xocl.txt", "proc/device-tree/compatible"):
        (machine.root / path).unlink()
    check = one(examine(machine, packed), "bundle kv260")
    assert check.status == "note" and check.fix == "Set BOARD to its name."


def test_on_a_workstation_it_is_whole(workstation: Make, packed: Bundle) -> None:
    assert "fastcar boards" in one(examine(workstation(), packed), "bundle kv260").found
