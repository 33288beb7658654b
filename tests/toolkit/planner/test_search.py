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
from fastcar.overlays.flow.choose import choose_engine
from fastcar.overlays.load import engine_text
from fastcar.toolkit.config import DepthConfig
from fastcar.toolkit.errors import UsageError
from fastcar.toolkit.planner.clip import Replay
from fastcar.toolkit.planner.plan import Request, plan_model
from fastcar.toolkit.planner.program import shape_program
from fastcar.toolkit.planner.search import (
    CLOCKS,
    GROUPS,
    VECTORS,
    _Ranking,
    engine_memory,
    search_engine,
    sized_engine,
)
from fastcar.toolkit.planner.shapes import load_shape
from fastcar.toolkit.planner.step import Rows, StepCounter
from fastcar.toolkit.program.engine import DepthCapacity

PROGRAM = shape_program(load_shape("llama-1.1b"), "w4a8")
ROWS = Rows(2, 1)


def seconds(engine, board) -> float:
    step = StepCounter(counter_of_any_engine(), PROGRAM, ROWS, engine, engine_memory(board, engine.clock_mhz))
    counts = step.counts(1040, np.zeros((1, 22), np.uint32), True)
    return sum(one.cycles for one in counts.values()) / engine.clock_mhz


@pytest.mark.parametrize("name", ["kv260", "zcu104"])
def test_no_engine_within_the_budget_is_faster(name: str) -> None:
    """Of every number of groups and every vector, with the FIFOs and the clock found."""
    board = load_board(name)
    base = sized_engine("tried", PROGRAM, 2, board.overlay.clock_mhz)
    found = search_engine(board, PROGRAM, ROWS, None, counter_of_any_engine(), base).engine
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
    base = sized_engine("tried", PROGRAM, 32, 300)
    with pytest.raises(UsageError, match=r"tried on ultra96v2: the least engine for it takes .*lut.* \(estimated\)"):
        search_engine(board, PROGRAM, Rows(32, 16), Replay(0.5, "all"), counter_of_any_engine(), base)


def test_its_file_is_one_that_the_build_reads(tmp_path) -> None:
    plan = plan_model(Request(load_shape("llama-1.1b"), "kv260"))
    path = tmp_path / f"{plan.engine.config.name}.toml"
    path.write_text(engine_text(plan.engine))
    again = load_engine(path)
    assert again.config == plan.engine.config and again.config.build_id == plan.engine.config.build_id
    assert load_board(again.board).name == "kv260"


@pytest.mark.parametrize("board", ["kv260", "zcu104"])
def test_of_a_depth_transformer_too(board: str, tmp_path) -> None:
    """Capacities hold both transformers, each at its own widths; the file brings them back."""
    shape = load_shape("vila-u-7b")
    engine = plan_model(Request(shape, board, search=True, anyway=True)).engine
    config, depth = engine.config, DepthCapacity(layers=6, codes_per_position=4, code_dim=256)
    assert config.depth == depth
    assert (config.max_heads, config.max_kv_heads, config.max_head_dim) == (40, 40, 128)
    assert (config.max_hidden, config.max_mlp, config.max_codes) == (4096, 11008, 16384)
    config.check(shape.backbone, shape.frame_layout, shape.depth)
    for field, less in (("max_heads", 39), ("max_codes", 16376), ("depth", depth.model_copy(update={"layers": 5}))):
        with pytest.raises(UsageError):
            config.model_copy(update={field: less}).check(shape.backbone, shape.frame_layout, shape.depth)

    path = tmp_path / f"{config.name}.toml"
    path.write_text(engine_text(engine))
    again = load_engine(path)
    assert again.config == config and again.config.build_id == config.build_id
    chosen, target = choose_engine(None, str(path), {"rows": 1})
    assert chosen.config.depth == depth and chosen.config.rows == 1 and target.name == board
    planned = plan_model(Request(shape, board, rows=2, engine=str(path), anyway=True))
    assert planned.origin == "given" and planned.engine.config == config


def test_a_wide_depth_transformer_sets_the_widths() -> None:
    """Off tile sizes, and wider than its backbone in everything."""
    shape = load_shape("llama-1.1b")
    depth = DepthConfig(hidden=2352, layers=3, heads=49, mlp=6000, codes_per_position=5, code_dim=80)
    shape = shape.model_copy(update={"depth": depth})
    engine = sized_engine("tried", shape_program(shape, "w8a8"), 2, 300)
    assert (engine.max_hidden, engine.max_mlp, engine.max_heads, engine.max_kv_heads) == (2368, 6016, 49, 49)
    assert (engine.max_head_dim, engine.max_group, engine.depth.code_dim) == (64, 8, 96)
    engine.check(shape.backbone, shape.frame_layout, shape.depth)


def test_layers_that_are_left_out_are_counted() -> None:
    """The time that ranks an engine is that of the whole step, though two layers of it are counted."""
    board, shape = load_board("zcu104"), load_shape("vila-u-7b")
    program = shape_program(shape, "w4a8")
    base = sized_engine("tried", program, 2, 300).model_copy(update={"groups": 2, "vector": 8})
    ranked = _Ranking(board, program, ROWS, None, counter_of_any_engine()).time(base)
    memory = engine_memory(board, 300)
    step = StepCounter(counter_of_any_engine(), program, ROWS, base, memory)
    position = shape.frame_layout.trained_positions // 2
    counted = step.counts(position, np.zeros((1, 32), np.uint32), True)
    assert ranked == pytest.approx(sum(one.cycles for one in counted.values()) / 300e6, rel=0.01)


def test_arrays_move_only_where_block_rams_are_short() -> None:
    kv260 = load_board("kv260")
    assert placement(load_engine("kv260").config, kv260) == {}
    wide = sized_engine("tried", PROGRAM, 2, 300).model_copy(
        update={"groups": 2, "vector": 8, "weight_fifo_beats": 8192}
    )
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
        engine = sized_engine("tried", PROGRAM, rows, 300).model_copy(update={"groups": 8, "vector": 8})
        assert set(placement(engine, board).values()) <= {"lutram"}


def test_kinds_of_memory() -> None:
    memory = Memory("scores", 132, 64, 4, variable="attention_.scores")
    assert memory.storage(True).bram36 == 4
    assert memory.storage(True, "uram").uram == 4
    assert memory.storage(True, "lutram").lut > 4 * 200
    assert memory.storage(True, "bram") == memory.storage(True)
