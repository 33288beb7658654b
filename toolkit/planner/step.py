"""Counts of a step at a position of the clip, by kind of work: the schedule of the C simulation, without arithmetic."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...export.overlay.program import ProgramPlan
from ...hls.counting import Counter, Memory, OperationCounts
from ..backends.engine_memory import control_settings
from ..program.descriptors import DEPTH_ENDING, DEPTH_INPUTS, DEPTH_LAYER, Opcode
from ..program.engine import EngineConfig
from ..program.memory import StateLayout
from ..program.registers import CONTROL, FLAG_PROMPT, FLAG_REASSIGN
from ..settings import FULL_ATTENTION, AttentionSettings, ReplaySettings, SamplingSettings
from .shapes import ModelShape

__all__ = [
    "CLASSES",
    "DEPTH",
    "OPERATION_CLASS",
    "PROJECTIONS",
    "Rows",
    "StepCounter",
    "StepCounts",
    "total",
    "whole",
]

DEPTH, PROJECTIONS = "depth transformer", "projections"

OPERATION_CLASS = {
    Opcode.EMBED: "embedding",
    Opcode.NORM_ATTENTION: "norms",
    Opcode.LINEAR_QKV: "attention projections",
    Opcode.HEADS: "rotary, TAS, cache writes",
    Opcode.ATTENTION: "attention",
    Opcode.LINEAR_OUTPUT: "attention projections",
    Opcode.NORM_MLP: "norms",
    Opcode.LINEAR_GATE_UP: "MLP",
    Opcode.LINEAR_DOWN: "MLP",
    Opcode.NORM_FINAL: "norms",
    Opcode.LINEAR_LOGITS: "head",
    Opcode.SAMPLE: "sampling",
    **dict.fromkeys((*DEPTH_INPUTS, *DEPTH_LAYER, *DEPTH_ENDING), DEPTH),
    Opcode.PROJECT: PROJECTIONS,
}
CLASSES = tuple(dict.fromkeys(OPERATION_CLASS.values()))
SAMPLING = SamplingSettings(1.0, 900, 0.96, 1.0)  # how long sampling takes does not depend on it

StepCounts = dict[str, OperationCounts]
"""By class of work, sums over the rows of a step."""


@dataclass(frozen=True)
class Rows:
    """``rows`` of a step, of which ``clips`` sample: as many, or half where an unconditional row runs beside each."""

    rows: int
    clips: int

    @classmethod
    def of(cls, shape: ModelShape, rows: int | None) -> Rows:
        """``rows`` None: those of one clip. Rows that are no whole guided clips sample each their own."""
        each = 2 if shape.guided else 1
        if rows is None:
            return cls(each, 1)
        return cls(rows, rows // each if rows % each == 0 else rows)


class StepCounter:
    """Counts steps of a program on one engine; ``omitted``: operations left out, with all they move."""

    def __init__(
        self,
        counter: Counter,
        plan: ProgramPlan,
        rows: Rows,
        engine: EngineConfig,
        memory: Memory,
        attention: AttentionSettings = FULL_ATTENTION,
        omitted: frozenset[Opcode] = frozenset(),
    ) -> None:
        self._counter, self._plan, self._rows, self._engine, self._memory = counter, plan, rows, engine, memory
        self._attention, self._omitted = attention, omitted
        self._program = plan.program()

    def counts(self, position: int, replays: np.ndarray, drs: bool) -> StepCounts:
        """Mean of the steps from ``position`` on, one for each (layers,) of ``replays``: masks of rows.

        Steps in the prompt read tokens, and but for its last one predict nothing; the others read what a step chose:
        with a depth transformer codes.
        """
        plan, steps = self._plan, len(replays)
        rows, clips, positions = self._rows.rows, self._rows.clips, plan.layout.positions
        unread = max(0, plan.layout.prompt_length - position)  # of the prompt
        layout = StateLayout.for_clip(
            plan.config, plan.layout, rows, clips, positions, steps, logits=False, depth=plan.depth
        )
        control = control_settings(layout, SAMPLING, ReplaySettings(), self._attention) | {
            "descriptors": len(self._program),
            "weight_beats": plan.end,
            "position": position,
            "steps": steps,
            "texts": min(steps, unread),
            "padding": 0,
            "flags": (FLAG_REASSIGN if drs else 0) | (FLAG_PROMPT if unread > steps else 0),
        }
        found = self._counter.count(
            self._program, CONTROL.pack(**control), replays, self._engine, self._memory, self._omitted
        )
        if found.report["status"]:
            raise ValueError(f"the schedule refuses the start: status {found.report['status']}")
        counts = [({OPERATION_CLASS[code]: operation}, 1 / steps) for code, operation in found.operations.items()]
        return total(counts)


def whole(counts: StepCounts) -> OperationCounts:
    """Sum over the classes."""
    return sum(counts.values(), OperationCounts())


def total(parts: list[tuple[StepCounts, float]]) -> StepCounts:
    """Sum of counts, each times its weight, in the order of ``CLASSES``."""
    sums: StepCounts = {}
    for counts, weight in parts:
        for name, operation in counts.items():
            sums[name] = sums.get(name, OperationCounts()) + operation.scaled(weight)
    return {name: sums[name] for name in CLASSES if name in sums}
