"""Plans of models on boards: what fits, what limits, and what is told where nothing fits."""

from __future__ import annotations

import re

import pytest

from fastcar.boards import board_names, load_board
from fastcar.export.overlay.program import ProgramPlan, int4_linears
from fastcar.hls.resources import RESOURCES, budget, estimate_on, is_within, total
from fastcar.toolkit.backends.engine import state_layout
from fastcar.toolkit.errors import FitError, UsageError
from fastcar.toolkit.planner.clip import Replay
from fastcar.toolkit.planner.energy import power
from fastcar.toolkit.planner.limits import CLOSE
from fastcar.toolkit.planner.memory_fit import MIB, largest, memory_need
from fastcar.toolkit.planner.plan import Plan, Request, plan_model
from fastcar.toolkit.planner.program import shape_program
from fastcar.toolkit.planner.shapes import load_shape, shape_names
from fastcar.toolkit.planner.step import Rows
from fastcar.toolkit.settings import FULL_ATTENTION, AttentionSettings

CLASSES = {"embedding", "norms", "attention projections", "attention", "MLP", "head", "sampling"}


def plan(name: str, board: str, **options: object) -> Plan:
    return plan_model(Request(load_shape(name), board, **options))


@pytest.fixture(scope="module")
def llama() -> Plan:
    return plan("llama-1.1b", "kv260", rows=2, replay=Replay(0.87, "all"))


def test_the_engine_is_within_the_budget(llama: Plan) -> None:
    used, usable = total(estimate_on(llama.engine.config, llama.board)), budget(llama.board)
    assert all(getattr(used, name) <= getattr(usable, name) for name in RESOURCES)
    assert "none that comes with the project takes the model" in llama.origin, "eight query heads a key/value head"
    llama.engine.config.check(llama.request.shape.backbone, llama.request.shape.frame_layout)


def test_replay_with_scheduling_saves_bytes_and_time(llama: Plan) -> None:
    dense, replay, drs = (llama.modes[name] for name in ("dense", "replay", "replay+drs"))
    assert replay.seconds_per_step == pytest.approx(dense.seconds_per_step, rel=0.01)
    assert 1.9 < dense.seconds_per_step / drs.seconds_per_step < 2.3
    saved = dense.counts.bytes_per_step - drs.counts.bytes_per_step
    mlp = 16 * dense.counts.step["MLP"].beats
    assert saved == pytest.approx(0.87 * 7 / 8 * mlp, rel=0.02), "87 % of 7 of 8 frames"
    assert set(dense.counts.step) > CLASSES
    assert drs.joules_per_frame < dense.joules_per_frame
    assert drs.joules_per_frame == pytest.approx(drs.energy.power.total * drs.seconds_per_frame)
    assert drs.seconds_per_clip < 8.3 * drs.seconds_per_frame, "the prompt's 32 positions on top"


def test_a_window_reads_fewer_keys_and_values() -> None:
    """Of 1027 positions, 515 on average; with the window 68."""
    whole, window = (plan("car", "kv260", attention=one) for one in (FULL_ATTENTION, AttentionSettings(4, 64)))
    reads = [one.modes["dense"].counts.step["attention"].read_beats for one in (whole, window)]
    assert reads[1] < 0.2 * reads[0] and window.modes["dense"].seconds_per_step < whole.modes["dense"].seconds_per_step


def test_independent_rows_save_less(llama: Plan) -> None:
    alone = plan("llama-1.1b", "kv260", rows=2, replay=Replay(0.87, "independent"))
    times = [one.modes["replay+drs"].seconds_per_step for one in (llama, alone)]
    assert times[0] < times[1] < llama.modes["dense"].seconds_per_step


@pytest.mark.slow
@pytest.mark.parametrize("board", board_names())
@pytest.mark.parametrize("name", shape_names())
def test_a_step_takes_what_its_bytes_take_or_the_limit_is_named(name: str, board: str) -> None:
    shape = load_shape(name)
    shape = shape.model_copy(update={"frame_layout": shape.frame_layout.model_copy(update={"frames": 2})})
    try:
        found = plan_model(Request(shape, board, replay=Replay(0.8, "all")))
    except FitError as error:
        memory = "MiB" in str(error) and "in all" in error.dump
        assert memory or ("the least engine for it takes" in str(error) and "budget" in error.dump)
        return
    for mode in found.modes.values():
        rate = found.memory.beats_per_cycle * 16 * mode.clock_mhz * 1e6
        ratio = mode.seconds_per_step * rate / mode.counts.bytes_per_step
        assert ratio == pytest.approx(mode.limit.over_memory)
        assert ratio > 0.999
        assert (mode.limit.name == "memory bandwidth") == (ratio <= CLOSE)
        assert mode.limit.is_memory or re.match(r".+ in .+ \(\d+% of the time beyond its bytes\)", mode.limit.name)


def test_what_does_not_fit_is_summed_up() -> None:
    with pytest.raises(FitError) as caught:
        plan("vila-u-7b", "kv260")
    need = memory_need(shape_program(load_shape("vila-u-7b"), "w4a8"), Rows(2, 1))
    numbers = [int(text.replace(",", "")) for text in re.findall(r"([\d,]+) MiB  ", caught.value.dump)]
    assert sum(numbers[:-2]) == pytest.approx(numbers[-2], abs=3) == round(need.total / MIB)
    assert numbers[-1] == round(largest(load_board("kv260"))[0] / MIB)
    assert re.search(r"Nearest that fits: the first \d+ of its 32 layers", str(caught.value))


@pytest.mark.parametrize(("name", "board", "recipe"), [("vila-u-7b", "kv260", "w8a8"), ("emu3-8b", "kv260", "w4a8")])
def test_what_is_called_nearest_fits_and_one_layer_more_does_not(name: str, board: str, recipe: str) -> None:
    with pytest.raises(FitError) as caught:
        plan(name, board, recipe=recipe)
    most, _ = largest(load_board(board))
    lines = re.findall(r"the first (\d+) of its \d+ layers in (\w+), (\d+) frames?, (one|2) row", caught.value.dump)
    assert len(lines) >= 2
    for layers, named, frames, rows in lines:
        one_row = rows == "one"
        sizes = []
        for count in (int(layers), int(layers) + 1):
            shape = load_shape(name)
            parts = {
                "backbone": shape.backbone.model_copy(update={"layers": count}),
                "frame_layout": shape.frame_layout.model_copy(update={"frames": int(frames)}),
            }
            shape = shape.model_copy(update=parts)
            rows_of = Rows(1, 1) if one_row else Rows(2, 1)
            sizes.append(memory_need(shape_program(shape, named), rows_of).total)
        assert sizes[0] <= most < sizes[1]


def test_a_device_that_holds_no_engine_is_nobodys_nearest() -> None:
    """The memory of an Ultra96-V2 holds these clips; of its LUTs no engine for them can be made."""
    with pytest.raises(FitError, match="the least engine for it takes lut .* at most lut 59,976") as caught:
        plan("car", "ultra96v2")
    table, nearest = caught.value.dump.split("What fits, the smallest change first:\n")
    total, allowed = (re.search(rf"^  {name} .* (\d+)$", table, re.M) for name in ("total", "budget"))
    assert total and allowed and int(total[1]) > int(allowed[1]) == 59_976
    assert nearest.strip() == "as it is: on kr260, kv260, u280 (estimates only), zcu102, zcu104, zcu106"

    with pytest.raises(FitError, match="5,044 MiB") as caught:
        plan("vila-u-7b", "ultra96v2")
    assert "layers in" not in caught.value.dump and "other built-in shapes" not in caught.value.dump


def test_an_engine_that_the_board_does_not_hold() -> None:
    with pytest.raises(FitError, match="engine zcu102 on kv260: an estimate of .*LUT .* No number of groups fits"):
        plan("car", "kv260", engine="zcu102")
    found = plan("car", "kv260", engine="zcu102", anyway=True)
    assert found.engine.config.name == "zcu102" and not is_within(found.engine.config, found.board)


def test_time_of_what_does_not_fit() -> None:
    """Bound by the memory's rate, which the bytes by hand divided by."""
    shape = load_shape("vila-u-7b")
    shape = shape.model_copy(update={"frame_layout": shape.frame_layout.model_copy(update={"frames": 1})})
    found = plan_model(Request(shape, "zcu102", anyway=True))
    assert found.step is None
    mode = found.modes["dense"]
    depth, projections = 4 * (0.472e9 * 17 / 32 + 2560 * 16384), 31e6
    weights = 6.476e9 * 17 / 32 + depth + projections
    cached = 2 * 2 * 32 * 4096 * (64 + 128)  # keys and values of two rows, half way through the frame
    assert mode.counts.bytes_per_step == pytest.approx(weights + cached, rel=0.01)
    assert mode.seconds_per_step == pytest.approx(mode.counts.bytes_per_step / (17.07e9 * 0.85), rel=0.07)


def test_memory_of_a_shape_by_hand() -> None:
    """Keys and values of 8 bits for 2112 slots, replayed outputs of 16 bits and their ages."""
    need = memory_need(shape_program(load_shape("llama-1.1b"), "w4a8"), Rows(2, 1))
    assert need.caches == 2 * 2 * 22 * 4 * 64 * 2112
    assert need.replayed == 256 * 22 * 2 * (2 * 2048 + 16)
    assert need.total == sum(size for _, size in need.parts())


def test_memory_with_a_depth_transformer_is_that_of_the_packed_program() -> None:
    """Every byte of program and weights, and of the buffer that a clip's back end would ask for."""
    shape = load_shape("vila-u-7b")
    config, layout, depth = shape.backbone, shape.frame_layout, shape.depth
    engine = plan("vila-u-7b", "zcu102", anyway=True).engine.config
    packed = ProgramPlan(config, layout, int4_linears(4, depth), engine, depth=depth)
    buffer = state_layout(config, layout, 2, 1, layout.positions, depth=depth)
    need = memory_need(shape_program(shape, "w4a8"), Rows(2, 1))
    thresholds = 16 * (buffer.total_beats - buffer.thresholds)
    assert need.total == packed.bytes + 16 * buffer.total_beats
    assert need.caches == 2 * 2 * 32 * 32 * 128 * 2112 + 6 * 2 * 2 * 2560 * 64
    assert need.records == thresholds + 64 * len(packed.program())


def test_engines_that_are_asked_for() -> None:
    assert plan("car", "kv260").origin == "comes with the project"
    assert plan("car", "kv260", engine="kv260").origin == "given"
    searched = plan("car", "kv260", search=True)
    assert searched.origin.startswith("the best of")
    assert searched.modes["dense"].seconds_per_step <= 1.02 * plan("car", "kv260").modes["dense"].seconds_per_step
    with pytest.raises(UsageError, match=r"engine kv260: heads a key/value head 8, at most 2"):
        plan("llama-1.1b", "kv260", engine="kv260")
    with pytest.raises(UsageError, match="4 rows, it has 2"):
        plan("car", "kv260", engine="kv260", rows=4)
    with pytest.raises(UsageError, match="--rows: 33"):
        plan("car", "kv260", rows=33)
    with pytest.raises(UsageError, match="recipe: 'w2a2'"):
        plan("car", "kv260", recipe="w2a2")


def test_power_of_the_designs_it_was_fitted_to() -> None:
    """Within 15 % of what the two publications behind the constants measured, 40 % elsewhere."""
    board = load_board("kv260")
    for lut, watts in ((78_000, 6.57), (26_000, 3.81)):
        assert power(board, lut, 300, 1.0, 16e9).chip == pytest.approx(watts, rel=0.15)
    assert power(board, 98_300, 250, 1.0, 3.5e9).chip == pytest.approx(4.8, rel=0.45)
    assert power(load_board("zcu104"), 66_000, 266, 1.0, 32e9).chip == pytest.approx(7.09, rel=0.4)
    idle, busy = (power(board, 80_000, 300, use, 16e9).total for use in (0.0, 1.0))
    assert idle < busy and power(board, 80_000, 300, 1.0, 8e9).total < busy
