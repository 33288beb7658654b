"""Counts of a step at a position of the clip, by kind of work: the schedule of the C simulation, without arithmetic."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...hls.counting import Counter, Memory, OperationCounts
from ..backends.engine_memory import control_settings
from ..program.descriptors import Opcode
from ..program.engine import EngineConfig
from ..program.memory import StateLayout
from ..program.registers import CONTROL, FLAG_REASSIGN
from ..settings import FULL_ATTENTION, AttentionSettings, ReplaySettings, SamplingSettings
from .passes import BACKBONE, Pass
from .shapes import ModelShape

__all__ = ["CLASSES", "Rows", "StepCounter", "StepCounts", "total", "whole"]

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
}
CLASSES = (*dict.fromkeys(OPERATION_CLASS.values()), "depth transformer", "projections")
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
    """Counts the passes of a position on one engine. Programs are made once."""

    def __init__(
        self,
        counter: Counter,
        passes: tuple[Pass, ...],
        rows: Rows,
        engine: EngineConfig,
        memory: Memory,
        attention: AttentionSettings = FULL_ATTENTION,
    ) -> None:
        self._counter, self._rows, self._engine, self._memory = counter, rows, engine, memory
        self._attention = attention
        self._passes = [(one, one.plan.program(), one.plan.end) for one in passes]
        self._fixed: list[StepCounts] | None = None

    def counts(self, position: int, replays: np.ndarray, drs: bool) -> StepCounts:
        """Mean of the steps from ``position`` on, one for each (layers,) of ``replays``: masks of rows."""
        moving, *fixed = self._passes
        if self._fixed is None:
            self._fixed = [self._fixed_counts(one, program, end) for one, program, end in fixed]
        steps = len(replays)
        backbone = self._start(*moving, position, replays, drs)
        return total([(backbone, 1 / steps), *((counts, 1.0) for counts in self._fixed)])

    def _fixed_counts(self, one: Pass, program: np.ndarray, end: int) -> StepCounts:
        """Of a pass that is the same at every position."""
        replays = np.zeros((one.steps, one.config.layers), np.uint32)
        counts = self._start(one, program, end, one.first or 0, replays, True)
        return total([(counts, float(one.times))])

    def _start(
        self, one: Pass, program: np.ndarray, end: int, position: int, replays: np.ndarray, drs: bool
    ) -> StepCounts:
        rows, clips = self._rows.rows, self._rows.clips
        layout = StateLayout.for_clip(one.config, one.layout, rows, clips, one.layout.positions, len(replays), False)
        attention = self._attention if one.name == BACKBONE else FULL_ATTENTION
        control = control_settings(layout, SAMPLING, ReplaySettings(), attention) | {
            "descriptors": len(program),
            "weight_beats": end,
            "position": position,
            "steps": len(replays),
            "flags": FLAG_REASSIGN if drs else 0,
        }
        found = self._counter.count(program, CONTROL.pack(**control), replays, self._engine, self._memory, one.omitted)
        if found.report["status"]:
            raise ValueError(f"{one.name}: the schedule refuses the start: status {found.report['status']}")
        counts: StepCounts = {}
        for code, operation in found.operations.items():
            name = OPERATION_CLASS[code] if one.name == BACKBONE else one.name
            counts[name] = counts.get(name, OperationCounts()) + operation
        return counts


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
