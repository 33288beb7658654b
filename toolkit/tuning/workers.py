"""Processes that follow teachers: each keeps a back end and the clips of its scenes, so that no clip is made twice."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..backends.registry import open_backend
from ..bundle.bundle import Bundle
from ..evaluation.execute import Processes
from ..generation.run import generate
from ..settings import AttentionSettings, ReplaySettings, SamplingSettings
from ..video.decode import FrameDecoder
from .quality import compare
from .teacher import Followed, Scene, Teacher, follow, record_teacher

__all__ = ["FollowSettings", "Followers", "Generated"]


Jobs = Sequence[tuple[Scene, ReplaySettings]]


@dataclass(frozen=True)
class FollowSettings:
    """What all clips of a tuning have in common."""

    bundle: Path
    frames: int
    sampling: SamplingSettings
    attention: AttentionSettings


@dataclass(frozen=True)
class Generated:
    """PSNR, SSIM and agreement of a clip with the dense one, and its replay ratio, of eligible."""

    compared: tuple[float, float, float]
    ratio: float


class Followers:
    """``processes`` workers, onnxruntime on one thread in each; a scene belongs to one of them. A context manager,
    after which none is left. One that dies is started once more for what it was doing; UsageError if it dies again."""

    def __init__(self, settings: FollowSettings, processes: int | None = None) -> None:
        self._settings, self._number = settings, processes or os.cpu_count() or 1
        self._processes = Processes(_perform, self._number, "tune")
        self._owner: dict[Scene, int] = {}

    def __enter__(self) -> Followers:
        return self

    def __exit__(self, *raised: object) -> None:
        self._processes.__exit__(*raised)

    def follow(self, jobs: Jobs, advance: Callable[[], None] = lambda: None) -> list[Followed]:
        """In the order of ``jobs``; ``advance`` is called as each is done. What a worker raises is raised."""
        return self._all("follow", jobs, advance)

    def generate(self, jobs: Jobs, advance: Callable[[], None] = lambda: None) -> list[Generated]:
        """Clips with replay, compared with the dense ones; likewise."""
        return self._all("generate", jobs, advance)

    def _all(self, work: str, jobs: Jobs, advance: Callable[[], None]) -> list[Any]:
        owners = [self._owner.setdefault(scene, len(self._owner) % self._number) for scene, _ in jobs]
        found: list[Any] = [None] * len(jobs)

        def done(index: int, result: Any) -> None:
            found[index] = result
            advance()

        self._processes.run([(self._settings, work, *job) for job in jobs], done, owners=owners)
        return found


class _Worker:
    """What one process keeps."""

    def __init__(self, settings: FollowSettings) -> None:
        self.bundle = Bundle.open(settings.bundle, verify=False)
        self.backend = open_backend("onnxruntime", self.bundle, 1)
        self.decode = FrameDecoder(self.bundle, threads=1)
        self.common = {name: getattr(settings, name) for name in ("frames", "sampling", "attention")}
        self.teachers: dict[Scene, Teacher] = {}

    def follow(self, scene: Scene, replay: ReplaySettings) -> Followed:
        return follow(self.bundle, self.backend, self._teacher(scene), replay)

    def generate(self, scene: Scene, replay: ReplaySettings) -> Generated:
        dense = self._teacher(scene).codes
        run = generate(self.bundle, scene.prompt, seed=scene.seed, replay=replay, backend=self.backend, **self.common)
        if not run.complete:
            raise run.fault or KeyboardInterrupt
        frames = [self.decode(codes.reshape(-1, *run.grid, *codes.shape[2:])) for codes in (dense, run.codes[0])]
        return Generated(compare((dense, frames[0]), (run.codes[0], frames[1])), run.eligible_replay_ratio)

    def _teacher(self, scene: Scene) -> Teacher:
        if scene not in self.teachers:
            self.teachers[scene] = record_teacher(self.bundle, self.backend, scene, **self.common)
        return self.teachers[scene]


@lru_cache(maxsize=1)
def _worker(settings: FollowSettings) -> _Worker:
    """Of this process."""
    return _Worker(settings)


def _perform(task: tuple[FollowSettings, str, Scene, ReplaySettings]) -> Followed | Generated:
    settings, work, scene, replay = task
    return getattr(_worker(settings), work)(scene, replay)
