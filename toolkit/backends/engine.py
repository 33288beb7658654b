"""What every back end that drives the decode engine shares: whole frames a start, over one state buffer."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from ..config import SAMPLED, BackboneConfig, FrameLayout
from ..errors import UsageError
from ..numerics.tas import NEVER
from ..program.engine import EngineConfig
from ..program.memory import StateLayout
from ..program.packed import Packed
from ..program.registers import FLAG_LOGITS, FLAG_REASSIGN, FLAG_TEACHER, FLAG_TRACE, OWN_CODE, merge_words
from ..settings import FULL_ATTENTION, AttentionSettings, ReplaySettings, SamplingSettings
from .engine_memory import ClipRecords, EngineMemory, control_settings
from .protocol import FrameRecord

__all__ = ["Clock", "EngineBackend", "rows_of", "state_layout"]

POISON = 0xCD
NOT_SUMMED = ("status", "build_id", "cycles", "stalls")


def state_layout(
    config: BackboneConfig,
    layout: FrameLayout,
    rows: int,
    clips: int,
    limit: int,
    logits: bool = False,
    traced: bool = False,
) -> StateLayout:
    """The state buffer of a clip: caches for ``limit`` positions, records of a frame's steps or of the prompt's."""
    steps = max(layout.tokens_per_frame, layout.prompt_length)
    return StateLayout.for_clip(config, layout, rows, clips, limit, steps, logits, traced)


def rows_of(engine: EngineConfig, clips: int, guided: bool) -> int:
    """Rows of a step; UsageError if the engine has fewer."""
    rows = clips * (2 if guided else 1)
    if rows > engine.rows:
        raise UsageError(
            f"engine {engine.name}",
            f"{rows} rows ({clips} clips{', twice with guidance' if guided else ''})",
            f"at most {engine.rows}",
            "Give fewer prompts, or pack for an engine with more rows.",
        )
    return rows


@dataclass
class Clock:
    """Of the frames' starts: seconds in all, and those of them in which the engine did not work, the host's own."""

    starts: int = 0
    total: float = 0.0
    host: float = 0.0

    def add(self, total: float, host: float) -> None:
        self.starts, self.total, self.host = self.starts + 1, self.total + total, self.host + host


class EngineBackend(ABC):
    """Runs a packed model; ``reassign`` False turns Dynamic Resource Scheduling off.

    Between two starts of a clip nothing is allocated but what Python needs for its own small objects: records are
    written into arrays made in ``start``.

    For the self-test, in effect from the next ``start`` on: ``traced`` makes room for ``trace``, ``poison`` fills the
    state buffer with garbage instead of zeros.
    """

    name: str
    depth = None
    criterion = "tas"
    traced = False
    poison = False

    def __init__(
        self,
        engine: EngineConfig,
        packed: Packed,
        config: BackboneConfig,
        layout: FrameLayout,
        reassign: bool = True,
    ) -> None:
        self.engine, self.packed = engine, packed
        self.config, self.layout, self.reassign = config, layout, reassign

    @abstractmethod
    def memory_for(self, layout: StateLayout) -> EngineMemory:
        """A state buffer for the clip to come, every byte ``initial_byte``."""

    @abstractmethod
    def run_engine(self, control: dict[str, float]) -> tuple[dict[str, int], float]:
        """Start the engine once: its report, and the seconds from doorbell to done. Raises if it did not finish."""

    def start(
        self,
        clips: int,
        limit: int,
        sampling: SamplingSettings,
        replay: ReplaySettings,
        attention: AttentionSettings = FULL_ATTENTION,
        logits: bool = True,
    ) -> None:
        rows = rows_of(self.engine, clips, sampling.guided)
        layout = state_layout(self.config, self.layout, rows, clips, limit, logits, self.traced)
        self.memory = self.memory_for(layout)
        self.records = ClipRecords(layout, limit)
        self.clock = Clock()
        self.position = 0
        self._totals: dict[str, int] = {}
        self._never = np.full(self.config.layers, NEVER, np.int64)
        self._zeros = np.zeros((layout.steps, clips), np.int64)
        self._tokens = np.zeros((layout.steps, rows), np.int64)
        self._settings = control_settings(layout, sampling, replay, attention) | {
            "descriptors": len(self.packed.program),
            "weight_beats": len(self.packed.weights),
        }

    def prefill(self, tokens: np.ndarray) -> None:
        self._teach(tokens)

    def score(self, tokens: np.ndarray, following: np.ndarray | None = None) -> np.ndarray:
        if not self.memory.layout.logits:
            raise ValueError("score needs logits; expected start(..., logits=True)")
        return np.concatenate([record.logits for record in self._teach(tokens)])

    def decode(self, tokens: np.ndarray, uniforms: np.ndarray, thresholds: np.ndarray) -> FrameRecord:
        first, steps, seconds = self.position, self.memory.layout.steps, 0.0
        for start in range(0, len(uniforms), steps):  # one for a frame; more only for who asks for more at once
            part = uniforms[start : start + steps]
            record = self._run(self._given(tokens, len(part)), part, thresholds, 0)
            seconds += record.seconds
            following = self.layout.after(self.position - 1, record.codes[-1])
            tokens = np.tile(following, len(tokens) // len(following))
        return self.records.frame(first, len(uniforms), seconds)

    def trace(self, tokens: np.ndarray, uniforms: np.ndarray, thresholds: np.ndarray) -> dict[str, np.ndarray]:
        """One step, as ``decode`` with uniforms (1, clips): what every node left behind, by name, in order.

        See ``toolkit.program.trace.TraceLayout.arrays``. ValueError if the clip was started without ``traced``.
        """
        if not (self.memory.layout.traced and self.memory.layout.logits):
            raise ValueError("trace needs room and logits; expected traced = True before start(..., logits=True)")
        return self.memory.read_trace(self._run(tokens[None], uniforms, thresholds, FLAG_TRACE))

    @property
    def initial_byte(self) -> int:
        return POISON if self.poison else 0

    def counters(self) -> dict[str, int]:
        """Sums over all starts; see ``toolkit.program.registers.REPORT``. 64-bit counters as one number."""
        return dict(self._totals)

    def cached(self, position: int) -> dict[str, np.ndarray]:
        return self.memory.cached(position)

    def _given(self, tokens: np.ndarray, steps: int) -> np.ndarray:
        """(steps, rows): ``tokens`` for the first step; for the others separators, or that they read the last code."""
        given, forced = self._tokens[:steps], self.layout.forced(self.position, steps)
        given[:] = np.where(forced == SAMPLED, OWN_CODE, forced)[:, None]
        given[0] = tokens
        return given

    def _teach(self, tokens: np.ndarray) -> list[FrameRecord]:
        """Run the positions of tokens (rows, n), as many a start as the records hold."""
        steps = self.memory.layout.steps
        parts = [tokens[:, first : first + steps].T for first in range(0, tokens.shape[1], steps)]
        return [self._run(part, self._zeros[: len(part)], self._never, FLAG_TEACHER) for part in parts]

    def _run(self, tokens: np.ndarray, uniforms: np.ndarray, thresholds: np.ndarray, flags: int) -> FrameRecord:
        """tokens (steps, rows), uniforms (steps, clips)."""
        began, steps = time.perf_counter(), len(uniforms)
        self.memory.write_inputs(tokens, uniforms, thresholds)
        flags |= FLAG_REASSIGN if self.reassign else 0
        flags |= FLAG_LOGITS if self.memory.layout.logits else 0
        report, worked = self.run_engine(self._settings | {"position": self.position, "steps": steps, "flags": flags})
        self.memory.read_outputs(self.records, self.position, steps)
        self._add(report)
        seconds = time.perf_counter() - began
        if not flags & FLAG_TEACHER:
            self.clock.add(seconds, seconds - worked)
        record = self.records.frame(self.position, steps, seconds)
        self.position += steps
        return record

    def _add(self, report: dict[str, int]) -> None:
        for name, value in merge_words(report).items():
            if name not in NOT_SUMMED:
                self._totals[name] = self._totals.get(name, 0) + value
        self._totals["steps"] = self._totals["steps_done"]
        self._totals["replayed"] = self._totals["rows_replayed"]
