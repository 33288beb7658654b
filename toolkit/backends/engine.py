"""What every back end that drives the decode engine shares: whole frames a start, over one state buffer."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from ..config import PADDING, SAMPLED, BackboneConfig, DepthConfig, FrameLayout
from ..errors import UsageError
from ..numerics.tas import NEVER
from ..program.engine import EngineConfig
from ..program.memory import StateLayout
from ..program.packed import Packed
from ..program.registers import (
    FLAG_LOGITS,
    FLAG_PROMPT,
    FLAG_REASSIGN,
    FLAG_TEACHER,
    FLAG_TRACE,
    GIVEN,
    OWN_CODE,
    merge_words,
)
from ..settings import FULL_ATTENTION, AttentionSettings, ReplaySettings, SamplingSettings
from .engine_memory import ClipRecords, EngineMemory, control_settings
from .protocol import FrameRecord, next_read

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
    depth: DepthConfig | None = None,
) -> StateLayout:
    """The state buffer of a clip: caches for ``limit`` positions, records of a frame's steps or of the prompt's."""
    steps = max(layout.tokens_per_frame, layout.prompt_length)
    return StateLayout.for_clip(config, layout, rows, clips, limit, steps, logits, traced, depth)


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
        depth: DepthConfig | None = None,
    ) -> None:
        self.engine, self.packed = engine, packed
        self.config, self.layout, self.reassign, self.depth = config, layout, reassign, depth

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
        layout = state_layout(self.config, self.layout, rows, clips, limit, logits, self.traced, self.depth)
        self.memory = self.memory_for(layout)
        self.records = ClipRecords(layout, limit)
        self.clock = Clock()
        self.position = 0
        self._totals: dict[str, int] = {}
        self._never = np.full(self.config.layers, NEVER, np.int64)
        each = () if self.depth is None else (layout.codes_per_position,)
        self._zeros = np.zeros((layout.steps, clips, *each), np.int64)
        self._tokens = np.zeros((layout.steps, rows, *each), np.int64)
        self._padding = np.zeros(rows, np.int64)
        self._attention = attention
        self._settings = control_settings(layout, sampling, replay, attention) | {
            "descriptors": len(self.packed.program),
            "weight_beats": len(self.packed.weights),
        }

    def prefill(self, tokens: np.ndarray) -> None:
        """UsageError for padding with columns and sinks that would reach into the frames."""
        self._teach(tokens, flags=FLAG_PROMPT)

    def score(self, tokens: np.ndarray, following: np.ndarray | None = None) -> np.ndarray:
        if not self.memory.layout.logits:
            raise ValueError("score needs logits; expected start(..., logits=True)")
        return np.concatenate([record.logits for record in self._teach(tokens, following)])

    def decode(self, tokens: np.ndarray, uniforms: np.ndarray, thresholds: np.ndarray) -> FrameRecord:
        first, steps, seconds = self.position, self.memory.layout.steps, 0.0
        for start in range(0, len(uniforms), steps):  # one for a frame; more only for who asks for more at once
            part = uniforms[start : start + steps]
            record = self._run(self._given(tokens, len(part)), part, thresholds, 0)
            seconds += record.seconds
            tokens = next_read(self.position - 1, record.codes[-1], len(tokens), self.layout, self.depth)
        return self.records.frame(first, len(uniforms), seconds)

    def trace(self, tokens: np.ndarray, uniforms: np.ndarray, thresholds: np.ndarray) -> dict[str, np.ndarray]:
        """One step, as ``decode`` with uniforms (1, clips): what every node left behind, by name, in order.

        See ``toolkit.program.trace.TraceLayout.arrays``. ValueError if the clip was started without ``traced``.
        """
        if not (self.memory.layout.traced and self.memory.layout.logits):
            raise ValueError("trace needs room and logits; expected traced = True before start(..., logits=True)")
        return self.memory.read_trace(self._run(self._given(tokens, 1), uniforms, thresholds, FLAG_TRACE))

    @property
    def initial_byte(self) -> int:
        return POISON if self.poison else 0

    def counters(self) -> dict[str, int]:
        """Sums over all starts; see ``toolkit.program.registers.REPORT``. 64-bit counters as one number."""
        return dict(self._totals)

    def cached(self, position: int) -> dict[str, np.ndarray]:
        return self.memory.cached(position)

    def _given(self, tokens: np.ndarray, steps: int) -> np.ndarray:
        """(steps, rows): ``tokens`` for the first step; for the others separators, or that they read the last code.

        With a depth transformer (steps, rows, D); ``tokens`` (rows,) are tokens, (rows, D) codes.
        """
        first = self._text(tokens[:, None])[0]
        given, forced = self._tokens[:steps], self.layout.forced(self.position, steps)
        following = np.where(forced == SAMPLED, OWN_CODE, forced)
        given[:] = following[:, None] if self.depth is None else OWN_CODE
        given[0] = first
        return given

    def _teach(self, tokens: np.ndarray, following: np.ndarray | None = None, flags: int = 0) -> list[FrameRecord]:
        """Run the positions of tokens (rows, n), as many a start as the records hold.

        With a depth transformer tokens may be codes (rows, n, D); ``following`` (clips, n, D): see ``score``.
        """
        steps, records = self.memory.layout.steps, []
        for first in range(0, tokens.shape[1], steps):
            read = self._tokens[: tokens.shape[1] - first]
            read[:] = self._text(tokens[:, first : first + steps])
            given = self._zeros[: len(read)]
            if following is not None:
                given = GIVEN + following[:, first : first + steps].swapaxes(0, 1)
            records.append(self._run(read, given, self._never, FLAG_TEACHER | flags))
        return records

    def _text(self, tokens: np.ndarray) -> np.ndarray:
        """What the next start's first steps read: (rows, n) tokens with ``PADDING`` as any of them, or codes (rows, n,
        D), one after the other; the padding is counted, and how many are tokens."""
        self._texts = tokens.shape[1] if tokens.ndim == 2 else 0
        if tokens.ndim == 2:
            self._pad((tokens == PADDING).sum(axis=1))
            tokens = np.maximum(tokens, 0)
            if self.depth is not None:
                tokens = tokens[..., None]
        return tokens.swapaxes(0, 1)

    def _pad(self, more: np.ndarray) -> None:
        """For all positions to come: so many more in front of each row hold nothing."""
        layout, attention = self.layout, self._attention
        padding = self._padding + more
        if attention.columns and attention.sinks and more.any():
            most = int(padding.max())
            if attention.sinks + most > layout.prompt_length:
                raise UsageError(
                    "--attention",
                    f"{attention.sinks} sinks behind {most} positions of padding, with columns",
                    f"at most {layout.prompt_length - most} sinks, so that they end with the prompt",
                    "Ask for fewer sinks, or none.",
                )
        self._padding = padding

    def _run(self, tokens: np.ndarray, uniforms: np.ndarray, thresholds: np.ndarray, flags: int) -> FrameRecord:
        """tokens (steps, rows), uniforms (steps, clips); of a depth transformer with an axis of D at the end."""
        began, steps = time.perf_counter(), len(uniforms)
        self.memory.write_inputs(tokens, uniforms, thresholds, self._padding)
        flags |= FLAG_REASSIGN if self.reassign else 0
        flags |= FLAG_LOGITS if self.memory.layout.logits else 0
        report, worked = self.run_engine(
            self._settings
            | {
                "position": self.position,
                "steps": steps,
                "flags": flags,
                "texts": self._texts,
                "padding": int(self._padding.max()),
            }
        )
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
