"""Which boards a bundle runs on: engines that take its shape, and memory counted from its files."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from cli_runs import run
from packed_bundle import packed_copy

from fastcar.boards import board_names, load_board
from fastcar.boards.model import Linux
from fastcar.overlays import engine_names, load_engine
from fastcar.toolkit.board.fit import Fit, _memory, clip_memory, engines_for, fit_bundle, memory_shortage
from fastcar.toolkit.bundle.bundle import Bundle
from fastcar.toolkit.planner.program import shape_program
from fastcar.toolkit.planner.shapes import load_shape

MIB = 1 << 20


@pytest.fixture(scope="module")
def plain(bundle_w8a8: Path) -> Bundle:
    return Bundle.open(bundle_w8a8)


@pytest.fixture(scope="module")
def packed(bundle_w8a8: Path, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return Bundle.open(packed_copy(bundle_w8a8, tmp_path_factory.mktemp("packed") / "kv260", load_engine("kv260")))


def on(bundle: Bundle, board: str) -> Fit:
    return fit_bundle(bundle, load_board(board))


def with_cma(board: str, size: int, ddr: int | None = None):
    found = load_board(board)
    memory = found.ddr.model_copy(update={"bytes": ddr or found.ddr.bytes})
    return found.model_copy(update={"linux": Linux(source="a test", cma_bytes=size), "ddr": memory})


def test_every_engine_belongs_to_one_board() -> None:
    found = {board: [e.config.name for e in engines_for(load_board(board))] for board in board_names()}
    assert sorted(name for names in found.values() for name in names) == sorted(engine_names())
    assert found["kv260"] == ["kv260", "kv260-batch"] and found["ultra96v2"] == []


def test_packed_for_the_board(packed: Bundle) -> None:
    fit = on(packed, "kv260")
    assert fit.runs and fit.packed_for == "kv260" and fit.steps == () and "kv260" in fit.engines


def test_another_board_wants_another_export(packed: Bundle) -> None:
    fit = on(packed, "zcu102")
    assert fit.runs and fit.packed_for is None
    assert fit.steps == ("export with --board zcu102: it is packed for kv260",)


def test_without_packing_every_board_with_an_engine_runs_after_an_export(plain: Bundle) -> None:
    for board in board_names():
        fit = on(plain, board)
        assert fit.runs == bool(fit.engines) == (board not in ("u280", "ultra96v2")), board
        if fit.runs:
            assert fit.steps == (f"export with --board {fit.engines[0]}",) and fit.packed_for is None


def test_boards_without_an_engine(plain: Bundle) -> None:
    assert on(plain, "u280").reasons == ("for estimates only: no overlay is built for this board",)
    assert on(plain, "ultra96v2").reasons == ("no engine for this board comes with the project",)


def test_memory_is_that_of_the_files(packed: Bundle, plain: Bundle) -> None:
    """The state by hand: caches, replayed outputs, thresholds, records of as many steps as a frame has places."""
    pages = lambda size: max(8192, -(-size // 4096) * 4096)
    manifest = packed.manifest
    config, layout = manifest.config, manifest.frame_layout
    slots = -(-layout.positions // 64) * 64
    cache = config.layers * 2 * 2 * config.kv_heads * config.head_dim * slots
    replayed = layout.tokens_per_frame * config.layers * 2 * (2 * config.hidden + 16)
    thresholds = -(-config.layers // 2) * 16
    step = 16 * (1 + 1 + 1 + -(-config.layers // 4) + -(-config.layers * 2 // 2))
    state = cache + replayed + thresholds + max(layout.tokens_per_frame, layout.prompt_length) * step
    plan = clip_memory(packed, manifest.engine)
    assert plan.program == pages((packed.path / "program.bin").stat().st_size)
    assert plan.weights == pages((packed.path / "weights.bin").stat().st_size)
    assert plan.state == pages(state)
    assert clip_memory(plain, manifest.engine) == plan, "planned without packing"
    assert on(packed, "kv260").memory == plan


def test_memory_grows_with_the_whole_clip(plain: Bundle) -> None:
    """Caches of 64 positions at a time, of two rows, K and V."""
    config, layout = plain.manifest.config, plain.manifest.frame_layout
    longer = plain.manifest.model_copy(update={"frame_layout": layout.model_copy(update={"frames": 200})})
    slots = [-(-of.positions // 64) * 64 for of in (layout, longer.frame_layout)]
    engine = load_engine("kv260").config
    more = clip_memory(dataclasses.replace(plain, manifest=longer), engine).state - clip_memory(plain, engine).state
    cache = config.layers * 2 * 2 * config.kv_heads * config.head_dim * (slots[1] - slots[0])
    assert slots[1] > 5 * slots[0] and more == pytest.approx(cache, abs=4096)


def test_memory_against_what_there_is_by_default(packed: Bundle) -> None:
    needed = clip_memory(packed, packed.manifest.engine).total
    assert fit_bundle(packed, with_cma("kv260", int(needed * 1.05) + 1)).steps == ()
    short = fit_bundle(packed, with_cma("kv260", needed))
    assert short.runs and len(short.steps) == 1
    assert short.steps[0].startswith(f"boot with cma=64M: a clip takes {needed / MIB:.1f} MiB of contiguous memory, ")
    assert f"there is {needed / MIB:.0f} MiB by default" in short.steps[0]


def test_memory_that_no_boot_argument_brings(packed: Bundle) -> None:
    fit = fit_bundle(packed, with_cma("kv260", 1 * MIB, ddr=512 * MIB))
    assert not fit.runs and fit.steps == () and fit.engines == ("kv260",)
    assert "about 0 MiB of its 512 MiB of DDR can be reserved" in fit.reasons[0]


@pytest.mark.parametrize(
    ("board", "mib", "step", "reason"),
    [
        ("kv260", 900, None, None),
        ("kv260", 1400, "boot with cma=1472M: a clip takes 1400.0 MiB of contiguous memory, there is 1000 MiB", None),
        ("kv260", 1901, None, "a clip takes 1901.0 MiB of contiguous memory, and about 1900 MiB of its 4096 MiB"),
        ("zcu104", 1500, "boot with cma=1600M: a clip takes 1500.0 MiB of contiguous memory, there is 512 MiB", None),
        ("zcu104", 1600, None, "about 1536 MiB of its 2048 MiB of DDR"),
    ],
)
def test_large_models(board: str, mib: int, step: str | None, reason: str | None) -> None:
    steps, reasons = _memory(mib * MIB, load_board(board))
    assert len(steps) == (step is not None) and len(reasons) == (reason is not None)
    assert (step or "") in "".join(steps) and (reason or "") in "".join(reasons)


def test_default_memory_that_is_not_known(packed: Bundle) -> None:
    board = load_board("kv260").model_copy(update={"linux": None})
    fit = fit_bundle(packed, board)
    assert fit.runs and "CmaTotal" in fit.steps[0] and "not known" in fit.steps[0]


def test_a_model_too_large_for_any_engine_says_why(plain: Bundle) -> None:
    config = plain.manifest.config.model_copy(update={"layers": 99})
    large = dataclasses.replace(plain, manifest=plain.manifest.model_copy(update={"config": config}))
    fit = fit_bundle(large, load_board("kv260"))
    assert not fit.runs and fit.engines == () and fit.memory is None
    assert fit.reasons[0] == "engine kv260: layers 99, at most 40" and len(fit.reasons) == 2


def test_guidance_takes_two_rows(bundle_w8a8: Path, tmp_path: Path) -> None:
    """An engine of the user's own, with one row: named, and why it is not enough."""
    engine = load_engine("kv260")
    own = engine.model_copy(
        update={"board": "ultra96v2", "config": engine.config.model_copy(update={"name": "own", "rows": 1})}
    )
    bundle = Bundle.open(packed_copy(bundle_w8a8, tmp_path / "own", own))
    fit = on(bundle, "ultra96v2")
    assert fit.reasons == ("engine own: guidance takes 2 rows, at most 1",)


def test_an_engine_of_the_user_s_own(bundle_w8a8: Path, tmp_path: Path) -> None:
    engine = load_engine("kv260")
    own = engine.model_copy(update={"config": engine.config.model_copy(update={"name": "own", "max_layers": 30})})
    fit = on(Bundle.open(packed_copy(bundle_w8a8, tmp_path / "own", own)), "kv260")
    assert fit.runs and fit.packed_for == "own" and fit.steps == ()


def test_packed_for_an_older_build(packed: Bundle) -> None:
    engine = packed.manifest.engine.model_copy(update={"max_layers": 30})
    stale = dataclasses.replace(packed, manifest=packed.manifest.model_copy(update={"engine": engine}))
    fit = on(stale, "kv260")
    assert fit.runs and fit.packed_for is None
    assert fit.steps == ("export with --board kv260 again: it is packed for an older build of the engine",)


def test_planning_allocates_no_weights(plain: Bundle) -> None:
    from fastcar.toolkit.board import fit

    plan = fit._planned(plain, load_engine("kv260").config, fit.weight_widths(plain))
    assert plan.weights.strides == (0, 0) and plan.weights.dtype == np.uint8


def test_what_will_not_fit_is_known_before_it_is_packed(
    car_like: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model of seven billion weights; and what export says of a board whose memory others hold."""
    board = load_board("kv260")
    (reason,) = memory_shortage(shape_program(load_shape("vila-u-7b"), "w4a8"), board)
    assert reason.endswith("MiB of its 4096 MiB of DDR can be reserved")
    assert memory_shortage(shape_program(load_shape("llama-1.1b"), "w4a8"), board) == ()
    monkeypatch.setattr("fastcar.toolkit.board.fit.SYSTEM_BYTES", board.ddr.bytes - 4096)
    outcome = run("export", str(car_like), "--board", "kv260", "--out", str(tmp_path / "b"))
    assert outcome.code == 0 and "it will not run on kv260: a clip takes" in outcome.stderr
