"""The engine that is found: within the budget, and nothing near it is better."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from fastcar.boards import board_names, load_board
from fastcar.hls.counting import counter_of_any_engine
from fastcar.hls.memories import Memory
from fastcar.hls.resources import RESOURCES, budget, estimate, estimate_on, placement, total
from fastcar.hls.units import units
from fastcar.overlays import load_engine
from fastcar.overlays.load import engine_text
from fastcar.toolkit.errors import UsageError
from fastcar.toolkit.planner.clip import Replay
from fastcar.toolkit.planner.passes import int4_layers, passes
from fastcar.toolkit.planner.plan import Request, plan_model
from fastcar.toolkit.planner.search import CLOCKS, GROUPS, VECTORS, engine_memory, search_engine, sized_engine
from fastcar.toolkit.planner.shapes import load_shape
from fastcar.toolkit.planner.step import Rows, StepCounter

PARTS = passes(load_shape("llama-1.1b"), int4_layers("w4a8"))
ROWS = Rows(2, 1)


def seconds(engine, board) -> float:
    step = StepCounter(counter_of_any_engine(), PARTS, ROWS, engine, engine_memory(board, engine.clock_mhz))
    counts = step.counts(1040, np.zeros((1, 22), np.uint32), True)
    return sum(one.cycles for one in counts.values()) / engine.clock_mhz


@pytest.mark.parametrize("name", ["kv260", "zcu104"])
def test_no_engine_within_the_budget_is_faster(name: str) -> None:
    """Of every number of groups and every vector, with the FIFOs and the clock found."""
    board = load_board(name)
    base = sized_engine("tried", PARTS, 2, board.overlay.clock_mhz)
    found = search_engine(board, PARTS, ROWS, None, counter_of_any_engine(), base).engine
    usable = budget(board)
    best = seconds(found, board)
    for groups, vector in product(GROUPS, VECTORS):
        other = found.model_copy(update={"groups": groups, "vector": vector, "clock_mhz": base.clock_mhz})
        used = total(estimate_on(other, board))
        if all(getattr(used, key) <= getattr(usable, key) for key in RESOURCES):
            assert seconds(other, board) > best / 1.03, (groups, vector)
    used = total(estimate_on(found, board))
    assert all(getattr(used, key) <= getattr(usable, key) for key in RESOURCES)
    assert (found.clock_mhz < base.clock_mhz) == (name == "zcu104"), "whose memory is slower than the ports"
    clocks = [round(base.clock_mhz * share) for share in CLOCKS]
    slower = [found.model_copy(update={"clock_mhz": float(mhz)}) for mhz in clocks if mhz < found.clock_mhz]
    assert slower and all(seconds(one, board) > 1.005 * best for one in slower), "a slower clock loses nothing"


@pytest.mark.parametrize("name", board_names())
def test_the_memory_an_engine_gets(name: str) -> None:
    """Four columns, each behind a 128-bit port at the engine's clock; on the U280 behind eight of 256 bits."""
    board = load_board(name)
    memory = engine_memory(board, 200)
    assert memory.port_width == (16 if name == "u280" else 1)
    assert memory.beats_per_cycle == pytest.approx(min(4 * memory.port_width, board.ddr.sustained_gb_s / 0.2 / 16))
    if name == "kv260":
        assert engine_memory(board, 300).beats_per_cycle == pytest.approx(0.85 * 19.2e9 / 16 / 300e6)


def test_what_nothing_fits() -> None:
    board = load_board("ultra96v2")
    base = sized_engine("tried", PARTS, 32, 300)
    with pytest.raises(UsageError, match=r"tried on ultra96v2: the least engine for it takes .*lut.* \(estimated\)"):
        search_engine(board, PARTS, Rows(32, 16), Replay(0.5, "all"), counter_of_any_engine(), base)


def test_its_file_is_one_that_the_build_reads(tmp_path) -> None:
    plan = plan_model(Request(load_shape("llama-1.1b"), "kv260"))
    path = tmp_path / f"{plan.engine.config.name}.toml"
    path.write_text(engine_text(plan.engine))
    again = load_engine(path)
    assert again.config == plan.engine.config and again.config.build_id == plan.engine.config.build_id
    assert load_board(again.board).name == "kv260"


def test_arrays_move_only_where_block_rams_are_short() -> None:
    kv260 = load_board("kv260")
    assert placement(load_engine("kv260").config, kv260) == {}
    wide = sized_engine("tried", PARTS, 2, 300).model_copy(update={"groups": 2, "vector": 8, "weight_fifo_beats": 8192})
    bound = placement(wide, kv260)
    assert bound and set(bound.values()) <= {"uram", "lutram"}
    before, after = total(estimate(wide)), total(estimate_on(wide, kv260))
    assert before.bram36 > budget(kv260).bram36 >= after.bram36
    assert after.dsp == before.dsp and (after.uram > before.uram or after.lut > before.lut)
    names = {memory.variable for unit in units(wide) for memory in unit.memories if memory.variable}
    assert set(bound) <= names


def test_without_ultraram_arrays_go_to_luts_or_stay() -> None:
    board = load_board("zcu102")
    for rows in (2, 8):
        engine = sized_engine("tried", PARTS, rows, 300).model_copy(update={"groups": 8, "vector": 8})
        assert set(placement(engine, board).values()) <= {"lutram"}


def test_kinds_of_memory() -> None:
    memory = Memory("scores", 132, 64, 4, variable="attention_.scores")
    assert memory.storage(True).bram36 == 4
    assert memory.storage(True, "uram").uram == 4
    assert memory.storage(True, "lutram").lut > 4 * 200
    assert memory.storage(True, "bram") == memory.storage(True)
