"""The engine for a model on a board: capacities of the model, and the parallelism that is fastest within the budget."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import numpy as np

from ...boards import Board
from ...export.overlay.program import ProgramPlan
from ...hls.counting import Counter, Memory
from ...hls.resources import RESOURCES, budget, estimate_on, exceeded, total
from ..config import DepthConfig
from ..errors import UsageError
from ..program.descriptors import LAYER
from ..program.engine import DepthCapacity, EngineConfig
from ..program.memory import BEAT_BYTES, PORTS
from .clip import Replay
from .decisions import replay_masks
from .step import OPERATION_CLASS, Rows, StepCounter

__all__ = ["Found", "engine_memory", "search_engine", "sized_engine", "too_large"]

GROUPS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
VECTORS = (1, 2, 4, 8, 16)
FIFOS = (512, 1024, 2048, 4096, 8192)
CLOCKS = (1.0, 11 / 12, 5 / 6, 3 / 4, 2 / 3, 1 / 2)
"""Of the board's clock: slower ones close timing more easily, and memory-bound engines lose nothing."""

SAME = 1.01
"""Times within this factor count as equal: the engine that takes least of its scarcest resource is better."""

SAMPLED_LAYERS = 2  # of the backbone: layers are alike, and two stand for all of them
LAYERED = frozenset(OPERATION_CLASS[code] for code in LAYER)


@dataclass(frozen=True)
class Found:
    """``tried``: engines within the budget that were counted; ``refused``: those beyond it."""

    engine: EngineConfig
    tried: int
    refused: int


def engine_memory(board: Board, clock_mhz: float) -> Memory:
    """What the board's memory and ports give an engine at this clock, four columns of them."""
    width = max(1, int(board.ports.bytes_per_cycle / BEAT_BYTES) // PORTS)
    return Memory(board.sustained_beats_per_cycle(clock_mhz), width)


def sized_engine(name: str, program: ProgramPlan, rows: int, clock_mhz: float) -> EngineConfig:
    """The smallest capacities that hold the model, its depth transformer among it, and the least parallelism."""
    config, depth = program.config, program.depth
    models = [config] if depth is None else [config, depth]
    most = {name: max(getattr(one, name) for one in models) for name in ("hidden", "mlp", "heads", "kv_heads")}
    return EngineConfig(
        name=name,
        groups=1,
        vector=1,
        rows=rows,
        max_layers=config.layers,
        max_hidden=_up(most["hidden"], 32),
        max_mlp=_up(most["mlp"], 32),
        max_heads=most["heads"],
        max_kv_heads=most["kv_heads"],
        max_group=config.group,
        max_head_dim=_up(max(one.head_dim for one in models), 16),
        max_slots=_up(program.layout.positions, 64),
        max_codes=_up(program.layout.codes, 8),
        weight_fifo_beats=FIFOS[0],
        clock_mhz=clock_mhz,
        depth=None if depth is None else _depth_capacity(depth),
    )


def _depth_capacity(depth: DepthConfig) -> DepthCapacity:
    return DepthCapacity(
        layers=depth.layers, codes_per_position=depth.codes_per_position, code_dim=_up(depth.code_dim, 32)
    )


def _up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def search_engine(
    board: Board,
    program: ProgramPlan,
    rows: Rows,
    replay: Replay | None,
    counter: Counter,
    base: EngineConfig,
    advance: Callable[[int, int], None] = lambda done, total: None,
) -> Found:
    """The fastest engine of ``base``'s capacities within the board's budget; UsageError if none is.

    Groups and vector first, with the clock at its highest, then FIFOs and clock of the best of them.
    """
    ranked = _Ranking(board, program, rows, replay, counter)
    shapes = [base.model_copy(update={"groups": g, "vector": v}) for g, v in product(GROUPS, VECTORS)]
    affordable = [one for one in shapes if ranked.fits(one)]
    if not affordable:
        fix = "Fewer rows, frames or codes need less; or take a larger board."
        raise UsageError(f"{base.name} on {board.name}", *too_large(shapes[0], board), fix)
    for done, one in enumerate(affordable):
        ranked.time(one)
        advance(done + 1, len(affordable) + 2)
    best = ranked.best(affordable)
    fifos = [one for one in (best.model_copy(update={"weight_fifo_beats": f}) for f in FIFOS) if ranked.fits(one)]
    best = ranked.best(fifos)
    advance(len(affordable) + 1, len(affordable) + 2)
    clocks = [best.model_copy(update={"clock_mhz": max(1.0, float(round(best.clock_mhz * share)))}) for share in CLOCKS]
    fastest = min(map(ranked.time, clocks))
    best = min((one for one in clocks if ranked.time(one) <= SAME * fastest), key=lambda one: one.clock_mhz)
    advance(len(affordable) + 2, len(affordable) + 2)
    return Found(best, len(ranked.times), len(shapes) - len(affordable))


class _Ranking:
    def __init__(self, board: Board, program: ProgramPlan, rows: Rows, replay: Replay | None, counter: Counter) -> None:
        self._board, self._rows, self._counter = board, rows, counter
        self._usable = budget(board)
        self.times: dict[EngineConfig, float] = {}
        layers = min(SAMPLED_LAYERS, program.config.layers)
        self._repeats = program.config.layers / layers
        self._program = _shortened(program, layers)
        self._position = program.layout.trained_positions // 2
        self._masks = [np.zeros((1, layers), np.uint32)]
        if replay:
            self._masks.append(replay_masks(8, layers, rows.rows, replay.ratio, replay.policy))

    def fits(self, engine: EngineConfig) -> bool:
        return self._share(engine) <= 1

    def time(self, engine: EngineConfig) -> float:
        """Seconds of a dense and a replaying step."""
        if engine not in self.times:
            memory = engine_memory(self._board, engine.clock_mhz)
            step = StepCounter(self._counter, self._program, self._rows, engine, memory)
            counts = [step.counts(self._position, masks, True) for masks in self._masks]
            kinds = [(name, operation.cycles) for one in counts for name, operation in one.items()]
            cycles = sum(self._repeats * one if name in LAYERED else one for name, one in kinds)
            self.times[engine] = cycles / engine.clock_mhz / 1e6
        return self.times[engine]

    def best(self, engines: list[EngineConfig]) -> EngineConfig:
        fastest = min(map(self.time, engines))
        return min((one for one in engines if self.time(one) <= SAME * fastest), key=self._share)

    def _share(self, engine: EngineConfig) -> float:
        """Of the budget of the scarcest resource."""
        used = total(estimate_on(engine, self._board))
        shares = []
        for name in RESOURCES:
            have, need = getattr(self._usable, name), getattr(used, name)
            shares.append(need / have if have else float(need > 0) * 2)
        return max(shares)


def _shortened(program: ProgramPlan, layers: int) -> ProgramPlan:
    config = program.config.model_copy(update={"layers": layers})
    return ProgramPlan(config, program.layout, program.int4, program.engine, depth=program.depth)


def too_large(engine: EngineConfig, board: Board) -> tuple[str, str]:
    """What the least engine for a model takes beyond the budget, and the budget."""
    used, usable = total(estimate_on(engine, board)), budget(board)
    over = exceeded(engine, board)
    found = ", ".join(f"{name} {getattr(used, name):,g}" for name in over)
    expected = ", ".join(f"{name} {getattr(usable, name):,g}" for name in over)
    return f"the least engine for it takes {found} (estimated)", f"at most {expected}"
