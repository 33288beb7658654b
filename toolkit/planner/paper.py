"""The latencies of arXiv 2505.14709 beside the planner's: VILA-U 7B on an Alveo U280, relative to dense.

The publication's engine is not described well enough to plan its seconds, and 689.7 s are a tenth of what the card's
memory allows. So one number is fitted: the rate of the memory at which the dense clip takes as long as published. All
other rows follow from it. Figures were read second hand; they are in ``published.toml``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...boards import load_board
from ...export.overlay.program import ProgramPlan
from ...hls.counting import ANY_ENGINE, Counter, Memory
from ..program.descriptors import Opcode
from ..program.memory import BEAT_BYTES, PORTS
from ..settings import FULL_ATTENTION, AttentionSettings
from .clip import ClipCounts, Replay, clip_counts
from .program import shape_program
from .published import SPARE, published_replay
from .shapes import load_shape
from .step import DEPTH, OPERATION_CLASS, PROJECTIONS, Rows, StepCounter

__all__ = ["PUBLISHED", "Row", "compare_with_paper", "fitted_rate", "implied_mlp_share"]

SHAPE, BOARD, RECIPE = "vila-u-7b", "u280", "w8a8"
SINKS = 4  # assumed, as in arXiv 2309.17453
PAPER = published_replay()
DENSE_SECONDS = PAPER.dense_seconds
BESIDE = frozenset(code for code, kind in OPERATION_CLASS.items() if kind in (DEPTH, PROJECTIONS))
"""Operations beside the backbone's."""

PUBLISHED: tuple[tuple[float, int | None, float], ...] = tuple(
    (row.ratio, row.window, row.seconds) for row in PAPER.rows
)
"""Share of all MLP evaluations that replay, attention window, latency in seconds; dense: ``DENSE_SECONDS``."""


@dataclass(frozen=True)
class Row:
    """Speed-ups over dense. ``with_depth``: the depth transformer and the projections counted; ``backbone``: not.
    ``seconds``: of the clip with them.

    ``mlp_share``: of the dense time, what the published speed-up implies for the MLPs if they alone shrink.
    """

    ratio: float
    window: int | None
    published: float
    with_depth: float
    backbone: float
    seconds: float
    mlp_share: float | None

    @property
    def error(self) -> float:
        """Of the prediction with everything counted, relative to the published speed-up."""
        return self.with_depth / self.published - 1


def implied_mlp_share(ratio: float, seconds: float) -> float:
    """Of the dense time: dense * (1 - ratio * share) = seconds."""
    return (1 - seconds / DENSE_SECONDS) / ratio


def compare_with_paper(counter: Counter) -> list[Row]:
    """In the order of ``PUBLISHED``."""
    plan = shape_program(load_shape(SHAPE), RECIPE)
    rate = fitted_rate(counter, plan)
    whole, backbone = (_seconds(counter, plan, rate, omitted) for omitted in (frozenset(), BESIDE))
    rows = []
    for ratio, window, seconds in PUBLISHED:
        share = implied_mlp_share(ratio, seconds) if ratio and window is None else None
        fast = whole[0.0, None] / whole[ratio, window]
        alone = backbone[0.0, None] / backbone[ratio, window]
        rows.append(Row(ratio, window, DENSE_SECONDS / seconds, fast, alone, whole[ratio, window], share))
    return rows


def fitted_rate(counter: Counter, plan: ProgramPlan) -> float:
    """Bytes a second at which the dense clip takes as long as published, to 0.1 %."""
    rate = 20e9
    for _ in range(20):
        seconds = _clip(counter, plan, rate, 0.0, None).cycles_per_clip / _clock() / 1e6
        if abs(seconds / DENSE_SECONDS - 1) < 1e-3:
            break
        rate *= seconds / DENSE_SECONDS
    return rate


def _seconds(
    counter: Counter, plan: ProgramPlan, rate: float, omitted: frozenset[Opcode]
) -> dict[tuple[float, int | None], float]:
    """Of a clip by replay ratio and window."""
    every = ((0.0, None), *((ratio, window) for ratio, window, _ in PUBLISHED))
    return {case: _clip(counter, plan, rate, *case, omitted).cycles_per_clip / _clock() / 1e6 for case in every}


def _clip(
    counter: Counter,
    plan: ProgramPlan,
    rate: float,
    ratio: float,
    window: int | None,
    omitted: frozenset[Opcode] = frozenset(),
) -> ClipCounts:
    attention = FULL_ATTENTION if window is None else AttentionSettings(SINKS, window)
    engine = ANY_ENGINE.model_copy(update={**SPARE, "clock_mhz": _clock()})
    beats = rate / BEAT_BYTES / _clock() / 1e6
    memory = Memory(beats, math.ceil(beats / PORTS))
    step = StepCounter(counter, plan, Rows(2, 1), engine, memory, attention, omitted)
    layout, layers = plan.layout, plan.config.layers
    eligible = min(1.0, ratio * layout.frames / (layout.frames - 1))  # the first frame never replays
    mode = "replay+drs" if ratio else "dense"
    return clip_counts(step, layout, layers, 2, Replay(eligible, "all") if ratio else None, modes=(mode,))[mode]


def _clock() -> float:
    return load_board(BOARD).overlay.clock_mhz
