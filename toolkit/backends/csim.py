"""The overlay's C++ as a back end: whole frames a start, with the buffers and registers a board has."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from ...hls.library import EngineLibrary, SimulationError
from ..config import BackboneConfig, FrameLayout
from ..errors import BundleError, UsageError
from ..numerics.tas import NEVER
from ..program.memory import StateLayout
from ..program.packed import Packed
from ..program.registers import CONTROL, FLAG_LOGITS, FLAG_REASSIGN, FLAG_TEACHER, STATUS, merge_words
from ..settings import FULL_ATTENTION, AttentionSettings, ReplaySettings, SamplingSettings
from .engine_memory import EngineMemory, control_settings
from .protocol import FrameRecord

__all__ = ["CSimBackend", "Start"]

NOMINAL_RATE = 3.4  # beats a clock; any will do where only counters are compared
TIMES = ("cycles_low", "cycles_high", "stalls_low", "stalls_high")  # the cycle model's, not counted by the simulation


@dataclass(frozen=True)
class Start:
    """One start of the engine: its control record, and the decisions (steps, layers) as masks of rows."""

    control: dict[str, float]
    replays: np.ndarray

    @property
    def decodes(self) -> bool:
        """Whether the engine read its own codes, not a given text."""
        return not int(self.control["flags"]) & FLAG_TEACHER


class CSimBackend:
    """Runs the engine library over a packed model; ``reassign`` False turns Dynamic Resource Scheduling off.

    After every start the counters are compared with those of the schedule run without arithmetic: SimulationError if
    they differ. BundleError if the engine refuses the program.
    """

    name = "csim"

    def __init__(
        self,
        library: EngineLibrary,
        packed: Packed,
        config: BackboneConfig,
        layout: FrameLayout,
        reassign: bool = True,
    ) -> None:
        self.library, self.packed = library, packed
        self.config, self.layout, self.reassign = config, layout, reassign

    def start(
        self,
        clips: int,
        limit: int,
        sampling: SamplingSettings,
        replay: ReplaySettings,
        attention: AttentionSettings = FULL_ATTENTION,
    ) -> None:
        rows = clips * (2 if sampling.guided else 1)
        engine = self.library.config
        if rows > engine.rows:
            raise UsageError(
                f"engine {engine.name}",
                f"{rows} rows ({clips} clips{', twice with guidance' if sampling.guided else ''})",
                f"at most {engine.rows}",
                "Give fewer prompts, or pack for an engine with more rows.",
            )
        steps = max(self.layout.tokens_per_frame, self.layout.prompt_length)
        layout = StateLayout.for_clip(self.config, self.layout, rows, clips, limit, steps, logits=True)
        self.memory = EngineMemory(layout)
        self.position = 0
        self.starts: list[Start] = []
        self._totals: dict[str, int] = {}
        self._settings = control_settings(layout, sampling, replay, attention) | {
            "descriptors": len(self.packed.program),
            "weight_beats": len(self.packed.weights),
        }

    def prefill(self, tokens: np.ndarray) -> None:
        self._teach(tokens)

    def score(self, tokens: np.ndarray) -> np.ndarray:
        return np.concatenate([record.logits for record in self._teach(tokens)])

    def decode(self, tokens: np.ndarray, uniforms: np.ndarray, thresholds: np.ndarray) -> FrameRecord:
        return self._run(tokens[None], uniforms, thresholds, FLAG_LOGITS)

    def counters(self) -> dict[str, int]:
        """Sums over all starts; see ``toolkit.program.registers.REPORT``. 64-bit counters as one number."""
        return dict(self._totals)

    def cached(self, position: int) -> dict[str, np.ndarray]:
        return self.memory.cached(position)

    def _teach(self, tokens: np.ndarray) -> list[FrameRecord]:
        """Run the positions of tokens (rows, n), as many a start as the records hold."""
        never = np.full(self.config.layers, NEVER, np.int64)
        steps = self.memory.layout.steps
        parts = [tokens[:, first : first + steps].T for first in range(0, tokens.shape[1], steps)]
        zeros = np.zeros((steps, self.memory.layout.clips), np.int64)
        return [self._run(part, zeros[: len(part)], never, FLAG_TEACHER | FLAG_LOGITS) for part in parts]

    def _run(self, tokens: np.ndarray, uniforms: np.ndarray, thresholds: np.ndarray, flags: int) -> FrameRecord:
        """tokens (1 or steps, rows), uniforms (steps, clips)."""
        steps = len(uniforms)
        self.memory.write_inputs(tokens, uniforms, thresholds)
        flags |= FLAG_REASSIGN if self.reassign else 0
        control = self._settings | {"position": self.position, "steps": steps, "flags": flags}
        began = time.perf_counter()
        report = self.library.run(self.packed.program, self.packed.weights, self.memory.state, CONTROL.pack(**control))
        seconds = time.perf_counter() - began
        if report["status"]:
            name, meaning = STATUS[report["status"]]
            raise BundleError(
                "overlay", f"error {name}: {meaning}", "a program of this engine", "Pack the bundle again."
            )
        record = self.memory.read_outputs(self.position, steps, seconds)
        masks = (record.replay.astype(np.uint32) << np.arange(record.replay.shape[2], dtype=np.uint32)).sum(axis=2)
        self.starts.append(Start(control, masks))
        self._compare_counters(report)
        self._add(report)
        self.position += steps
        return record

    def _compare_counters(self, report: dict[str, int]) -> None:
        """The schedule without arithmetic must count what the simulation counted."""
        start = self.starts[-1]
        expected, _ = self.library.count(
            self.packed.program, CONTROL.pack(**start.control), start.replays, NOMINAL_RATE
        )
        for name, value in report.items():
            if name not in TIMES and expected[name] != value:
                raise SimulationError(f"counter {name} is {value}, the schedule says {expected[name]}")

    def _add(self, report: dict[str, int]) -> None:
        for name, value in merge_words(report).items():
            if name not in ("status", "build_id", "cycles", "stalls"):
                self._totals[name] = self._totals.get(name, 0) + value
        self._totals["steps"] = self._totals["steps_done"]
        self._totals["replayed"] = self._totals["rows_replayed"]
