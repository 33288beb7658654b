"""Plan a model on a board: engine, memory, time, energy, and what limits it. Everything is estimated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...boards import Board, load_board
from ...export.overlay.program import ProgramPlan
from ...hls.counting import Counter, Memory, counter_of_any_engine
from ...hls.resources import aligned, check_fits, estimate_on, is_within, table, total
from ...overlays.load import Engine, load_engine
from ..board.fit import engines_for
from ..errors import FitError, UsageError
from ..program.engine import EngineConfig
from ..settings import FULL_ATTENTION, AttentionSettings
from .clip import ClipCounts, Replay, clip_counts
from .energy import Energy, energy_of_step
from .limits import Limit, limit_of
from .memory_fit import MIB, MemoryNeed, largest, memory_need, memory_step
from .nearest import nearest
from .program import shape_program
from .search import engine_memory, search_engine, sized_engine, too_large
from .shapes import ModelShape, file_word
from .step import Rows, StepCounter, whole

__all__ = ["ModePlan", "Plan", "Request", "plan_model"]

Advance = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Request:
    """``engine``: name or path; None: the board's fastest that takes the model, else one is sized for it.
    ``search``: size one in any case. ``rows`` None: two where the model is guided, else one. ``anyway``: plan the time
    of what the memory does not hold, too, and of a given engine that the device does not hold."""

    shape: ModelShape
    board: str
    recipe: str = "w4a8"
    rows: int | None = None
    replay: Replay | None = None
    attention: AttentionSettings = FULL_ATTENTION
    engine: str | None = None
    search: bool = False
    anyway: bool = False


@dataclass(frozen=True)
class ModePlan:
    """One mode: dense, replay, replay with scheduling. Times in seconds."""

    counts: ClipCounts
    clock_mhz: float
    energy: Energy
    limit: Limit

    @property
    def seconds_per_step(self) -> float:
        return self.counts.cycles_per_step / self.clock_mhz / 1e6

    @property
    def seconds_per_frame(self) -> float:
        return self.counts.cycles_per_frame / self.clock_mhz / 1e6

    @property
    def seconds_per_clip(self) -> float:
        return self.counts.cycles_per_clip / self.clock_mhz / 1e6

    @property
    def joules_per_frame(self) -> float:
        return self.energy.joules * self.counts.tokens_per_frame


@dataclass(frozen=True)
class Plan:
    """``origin``: where the engine is from. ``step``: what to do on the board first, None if nothing."""

    request: Request
    board: Board
    engine: Engine
    origin: str
    rows: Rows
    memory: Memory
    need: MemoryNeed
    step: str | None
    modes: dict[str, ModePlan]


def plan_model(request: Request, advance: Advance = lambda stage, done, total: None) -> Plan:
    """FitError, with the sum spelled out and the nearest that fits, if the board does not hold the clip or an engine.

    UsageError if the engine that is asked for does not take the model.
    """
    board = load_board(request.board)
    rows = rows_of(request.shape, request.rows)
    program = shape_program(request.shape, request.recipe)
    need = memory_need(program, rows)
    if not request.anyway:
        check_memory(request, board, need)
    counter = counter_of_any_engine()
    engine, origin = _engine(request, board, program, rows, counter, advance)
    memory = engine_memory(board, engine.config.clock_mhz)
    step = StepCounter(counter, program, rows, engine.config, memory, request.attention)
    layout, layers = request.shape.frame_layout, request.shape.backbone.layers
    counts = clip_counts(
        step, layout, layers, rows.rows, request.replay, lambda done, total: advance("counting frames", done, total)
    )
    modes = {name: _mode(one, engine.config, board, memory) for name, one in counts.items()}
    return Plan(request, board, engine, origin, rows, memory, need, memory_step(need, board), modes)


def rows_of(shape: ModelShape, rows: int | None) -> Rows:
    """UsageError for more or fewer rows than an engine can have."""
    if rows is not None and not 1 <= rows <= 32:
        raise UsageError("--rows", str(rows), "1 to 32", "Give another number of rows.")
    return Rows.of(shape, rows)


def check_memory(request: Request, board: Board, need: MemoryNeed) -> None:
    """FitError with the sum and the nearest that fits."""
    most, why = largest(board)
    if need.total <= most:
        return
    lines = [f"  {size / MIB:>9,.0f} MiB  {name}" for name, size in need.parts()]
    lines.append(f"  {need.total / MIB:>9,.0f} MiB  in all")
    lines.append(f"  {most / MIB:>9,.0f} MiB  {board.name}: {why}")
    found = f"{need.total / MIB:,.0f} MiB for a clip in {request.recipe}"
    raise _unfit(request, board, found, f"at most {most / MIB:,.0f} MiB", lines)


def _check_least(request: Request, board: Board, least: EngineConfig) -> None:
    """FitError with the units of the least engine for the model and the nearest that fits, if it is beyond the board.

    One with more groups or wider units would be, too.
    """
    if not is_within(least, board):
        raise _unfit(request, board, *too_large(least, board), [f"  {line}" for line in aligned(table(least, board))])


def _unfit(request: Request, board: Board, found: str, expected: str, lines: list[str]) -> FitError:
    fits = nearest(request.shape, request.recipe, request.rows, board)
    lines = [*lines, "What fits, the smallest change first:", *(f"  {text}" for text in fits)]
    subject, fix = f"{request.shape.name} on {board.name}", f"Nearest that fits: {fits[0]}."
    return FitError(subject, found, expected, fix, "\n".join(lines))


def _engine(
    request: Request, board: Board, program: ProgramPlan, rows: Rows, counter: Counter, advance: Advance
) -> tuple[Engine, str]:
    if request.engine:
        engine = load_engine(request.engine)
        reason = _refusal(engine.config, program, rows)
        if reason:
            fix = "Leave --engine out to have one sized for the model."
            raise UsageError(f"engine {engine.config.name}", reason, "an engine that takes the model", fix)
        if not request.anyway:
            check_fits(engine.config, board)
        return engine, "given"
    known = [] if request.search or board.device.estimates_only else engines_for(board)
    accepting = [engine for engine in known if _refusal(engine.config, program, rows) is None]
    if accepting:
        return _fastest(accepting, program, rows, counter, board), "comes with the project"
    clock = board.overlay.clock_mhz
    base = sized_engine(f"{file_word(request.shape.name)}-{board.name}", program, rows.rows, clock)
    _check_least(request, board, base)
    found = search_engine(
        board, program, rows, request.replay, counter, base, lambda done, total: advance("sizing engines", done, total)
    )
    reasons = "" if request.search else "; none that comes with the project takes the model"
    note = f"the best of {found.tried} within the budget, {found.refused} beyond it{reasons}"
    about = f"Sized for {file_word(request.shape.name)} of {rows.rows} rows in {request.recipe}."
    place = str(Path(request.board).resolve()) if request.board.endswith(".toml") else board.name
    return Engine(board=place, config=found.engine, note=about), note


def _refusal(engine: EngineConfig, program: ProgramPlan, rows: Rows) -> str | None:
    if rows.rows > engine.rows:
        return f"{rows.rows} rows, it has {engine.rows}"
    try:
        engine.check(program.config, program.layout, program.depth)
    except UsageError as error:
        return f"{error.found}, {error.expected}"
    return None


def _fastest(engines: list[Engine], program: ProgramPlan, rows: Rows, counter: Counter, board: Board) -> Engine:
    dense = np.zeros((1, program.config.layers), np.uint32)

    def seconds(engine: Engine) -> float:
        memory = engine_memory(board, engine.config.clock_mhz)
        step = StepCounter(counter, program, rows, engine.config, memory)
        counts = step.counts(program.layout.trained_positions // 2, dense, False)
        return whole(counts).cycles / engine.config.clock_mhz

    return engines[0] if len(engines) == 1 else min(engines, key=seconds)


def _mode(counts: ClipCounts, engine: EngineConfig, board: Board, memory: Memory) -> ModePlan:
    lut = total(estimate_on(engine, board)).lut
    energy = energy_of_step(counts.step, board, lut, engine.groups, engine.clock_mhz)
    return ModePlan(counts, engine.clock_mhz, energy, limit_of(counts.step, memory))
