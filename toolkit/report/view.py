"""What a report is made of: one or two runs with their frames, and the facts about the bundle and the machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..board.power_record import EnergyRecord
from ..generation.record import Generation
from ..settings import ReplaySettings, SamplingSettings

__all__ = ["ReportFacts", "RunView", "check_comparable"]


@dataclass(frozen=True)
class RunView:
    """A generation and the frames decoded from its codes, (clips, frames, height, width, 3) uint8 RGB."""

    generation: Generation
    frames: np.ndarray
    energy: EnergyRecord | None = None  # None: no power sensor of a board

    def __post_init__(self) -> None:
        run, frames = self.generation, self.frames
        if frames.ndim != 5 or frames.shape[4] != 3 or frames.dtype != np.uint8 or 0 in frames.shape:
            found = f"frames of shape {frames.shape} and type {frames.dtype}"
            raise ValueError(f"run: {found}; expected (clips, frames, height, width, 3) of uint8 RGB, none empty")
        if frames.shape[:2] != run.codes.shape[:2] or run.cell_replay.shape[:2] != run.codes.shape[1:3]:
            found = f"{frames.shape[:2]} frames, codes {run.codes.shape}, replay {run.replay.shape}"
            raise ValueError(f"run: {found}; expected the same clips, frames and places in all")
        if run.codes.shape[2] != run.grid[0] * run.grid[1]:
            raise ValueError(f"run: {run.codes.shape[2]} codes a frame; expected those of the grid {run.grid}")
        if run.tas.shape != run.replay.shape or len(run.seconds) != len(run.replay) or run.rows % self.clips:
            found = f"tas {run.tas.shape}, replay {run.replay.shape}, seconds {run.seconds.shape}, {self.clips} clips"
            raise ValueError(f"run: {found}; expected equal tas and replay, one time a frame, and whole rows a clip")

    @property
    def clips(self) -> int:
        return self.frames.shape[0]

    @property
    def frame_count(self) -> int:
        return self.frames.shape[1]

    @property
    def layers(self) -> int:
        return self.generation.replay.shape[2]

    @property
    def thresholds(self) -> tuple[float | None, ...]:
        """One a layer, in units of TAS; a generation without any never replays."""
        return self.generation.thresholds or (None,) * self.layers

    def rows_of(self, clip: int) -> tuple[int, ...]:
        """Rows that ran for ``clip``: its own, then its unconditional one when the run was guided."""
        return tuple(range(clip, self.generation.rows, self.clips))


@dataclass(frozen=True)
class ReportFacts:
    """What the record of a generation does not know. Every text is shown as it is, escaped."""

    model: str
    recipe: str
    backend: str
    machine: str
    seed: int | None = None
    frames_per_second: float = 8.0
    sampling: SamplingSettings | None = None
    replay: ReplaySettings | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    command: str = ""  # what a reader types to get this run again
    device: Mapping[str, Any] | None = None  # what the pynq back end ran on
    criterion: str = "tas"  # the bundle's


def check_comparable(replay: RunView, dense: RunView | None) -> None:
    """ValueError unless ``dense``, when given, is a run of the same clips in the same layout."""
    if dense is None:
        return
    ours, theirs = ((run.frames.shape, run.generation.replay.shape[1:3]) for run in (replay, dense))
    if ours != theirs:
        raise ValueError(f"report: frames and (places, layers) {ours} and {theirs}; expected two runs of one shape")
