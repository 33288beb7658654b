"""The boards that come with the project: every file loads, names its sources and agrees with a table written here."""

from __future__ import annotations

import re

import pytest

from fastcar.boards import BEAT_BYTES, board_names, load_board
from fastcar.toolkit.errors import UsageError

GIB, MIB = 1 << 30, 1 << 20
HP = ("S_AXI_HP0_FPD", "S_AXI_HP1_FPD", "S_AXI_HP3_FPD", "S_AXI_HPC0_FPD")

# part, LUT / DSP / BRAM36 / URAM, bytes of DDR, MHz of its clock, bits of its bus
FACTS = {
    "kv260": ("xck26-sfvc784-2LV-c", (117120, 1248, 144, 64), 4 * GIB, 1200, 64),
    "kr260": ("xck26-sfvc784-2LV-c", (117120, 1248, 144, 64), 4 * GIB, 1200, 64),
    "zcu102": ("xczu9eg-ffvb1156-2-e", (274080, 2520, 912, 0), 4 * GIB, 1067, 64),
    "zcu104": ("xczu7ev-ffvc1156-2-e", (230400, 1728, 312, 96), 2 * GIB, 1067, 64),
    "zcu106": ("xczu7ev-ffvc1156-2-e", (230400, 1728, 312, 96), 4 * GIB, 1067, 64),
    "ultra96v2": ("xczu3eg-sbva484-1-i", (70560, 360, 216, 0), 2 * GIB, 533, 32),
    "u280": ("xcu280-fsvh2892-2L-e", (1303680, 9024, 2016, 960), 8 * GIB, 900, 2048),
}
BOARD_PARTS = {
    "kv260": "xilinx.com:kv260_som:part0:1.4",
    "kr260": "xilinx.com:kr260_som:part0:1.1",
    "zcu102": "xilinx.com:zcu102:part0:3.4",
    "zcu104": "xilinx.com:zcu104:part0:1.1",
    "zcu106": "xilinx.com:zcu106:part0:2.6",
    "ultra96v2": "avnet.com:ultra96v2:part0:1.2",
    "u280": "xilinx.com:au280:part0:1.1",
}
PL_DDR = {"zcu102": (512 * MIB, 4.8, True), "zcu104": (4 * GIB, 17.06, False), "zcu106": (2 * GIB, 19.2, True)}
CMA_MIB = {"kv260": 1000, "kr260": 1000, "zcu102": 256, "zcu104": 512, "zcu106": 256, "ultra96v2": None, "u280": None}

every_board = pytest.mark.parametrize("name", sorted(FACTS))
edge_board = pytest.mark.parametrize("name", sorted(FACTS.keys() - {"u280"}))


def tables(board):
    return {key: table for key, table in board if key != "name" and table is not None}


def test_the_boards_are_those_of_the_table() -> None:
    assert board_names() == tuple(sorted(FACTS))


@every_board
def test_values_are_those_of_the_vendors(name: str) -> None:
    board = load_board(name)
    part, (lut, dsp, bram36, uram), size, memory_mhz, bits = FACTS[name]
    assert (board.device.part, board.device.board_part) == (part, BOARD_PARTS[name])
    have = board.resources
    assert (have.lut, have.ff, have.dsp, have.bram36, have.uram) == (lut, 2 * lut, dsp, bram36, uram)
    assert board.ddr.bytes == size
    assert board.ddr.peak_gb_s == pytest.approx(memory_mhz * 1e6 * 2 * bits / 8 / 1e9, rel=0.002)
    assert board.device.estimates_only == (name == "u280")


@edge_board
def test_second_memory_and_contiguous_memory(name: str) -> None:
    board = load_board(name)
    second = board.pl_ddr and (board.pl_ddr.bytes, board.pl_ddr.peak_gb_s, board.pl_ddr.fitted)
    assert second == PL_DDR.get(name)
    assert (board.linux and board.linux.cma_bytes / MIB) == CMA_MIB[name]
    assert board.linux is None or board.linux.cma_bytes < board.ddr.bytes / 2


@edge_board
def test_the_overlay_reads_through_four_ports_that_do_not_share_a_controller_port(name: str) -> None:
    ports = load_board(name).ports
    assert ports.names == HP
    assert len(set(ports.controller_ports)) == 4
    assert (ports.width_bits, ports.max_burst_beats, ports.bytes_per_cycle) == (128, 16, 64)
    assert ports.width_bits // 8 == BEAT_BYTES


@edge_board
def test_clock_is_300_for_speed_grade_2(name: str) -> None:
    board = load_board(name)
    assert board.overlay.clock_mhz == (300 if "-2" in board.device.part else 250)
    assert "target" in board.overlay.source


@every_board
def test_every_value_has_a_source(name: str) -> None:
    """A document number, an arXiv id, files that a vendor publishes, or an open word that the value is assumed."""
    known = re.compile(
        r"\b(DS|UG|PG)\d{3,4}\b|arXiv:\d{4}\.\d{5}|board files \w+:part0:\d\.\d|Xilinx/[\w-]+|^assumed|Ubuntu 22\.04"
    )
    for where, table in tables(load_board(name)).items():
        for key in type(table).model_fields:
            assert known.search(table.source_of(key)), f"{where}.{key}: {table.source_of(key)!r}"


@every_board
def test_sustained_fraction_has_its_own_source(name: str) -> None:
    memory = load_board(name).ddr
    assert memory.source_of("sustained_fraction") == memory.sustained_fraction_source != memory.source
    assert memory.source_of("bytes") == memory.source
    if memory.type.startswith("DDR4"):
        assert "84-85 %" in memory.sustained_fraction_source


def test_rates_per_cycle() -> None:
    board = load_board("kv260")
    assert board.ddr.sustained_gb_s == pytest.approx(16.32)
    assert board.peak_bytes_per_cycle() == pytest.approx(64)
    assert board.sustained_bytes_per_cycle() == pytest.approx(54.4)
    assert board.sustained_beats_per_cycle() == pytest.approx(3.4)
    assert board.sustained_beats_per_cycle(300) == board.sustained_beats_per_cycle()
    assert board.peak_bytes_per_cycle(200) == pytest.approx(96)


def test_ports_bound_what_the_memory_sustains() -> None:
    """At 150 MHz the memory would give 6.8 beats a cycle; four ports carry four."""
    assert load_board("kv260").sustained_beats_per_cycle(150) == 4


@pytest.mark.parametrize("clock", [0, -300.0, float("nan"), float("inf")])
def test_an_impossible_clock_is_refused(clock: float) -> None:
    with pytest.raises(UsageError, match="positive number of MHz"):
        load_board("kv260").sustained_beats_per_cycle(clock)


def test_a_board_is_a_value() -> None:
    board = load_board("KV260")
    assert board == load_board("kv260")
    assert hash(board) == hash(load_board("kv260"))
    with pytest.raises(ValueError, match="frozen"):
        board.ddr.bytes = 1
