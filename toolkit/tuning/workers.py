"""Processes that follow teachers: each keeps a back end and the clips of its scenes, so that no clip is made twice."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..backends.registry import open_backend
from ..bundle.bundle import Bundle
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
    """``processes`` workers, onnxruntime on one thread in each; a scene belongs to one of them. A context manager."""

    def __init__(self, settings: FollowSettings, processes: int | None = None) -> None:
        context = multiprocessing.get_context("spawn")  # a fork would inherit the locks of onnxruntime's threads
        number = processes or os.cpu_count() or 1
        self._pools = [ProcessPoolExecutor(1, context, _open, (settings,)) for _ in range(number)]
        self._owner: dict[Scene, ProcessPoolExecutor] = {}

    def __enter__(self) -> Followers:
        return self

    def __exit__(self, *_: object) -> None:
        for pool in self._pools:
            pool.shutdown(wait=False, cancel_futures=True)

    def follow(self, jobs: Jobs, advance: Callable[[], None] = lambda: None) -> list[Followed]:
        """In the order of ``jobs``; ``advance`` is called as each is done. What a worker raises is raised."""
        return self._all(_follow, jobs, advance)

    def generate(self, jobs: Jobs, advance: Callable[[], None] = lambda: None) -> list[Generated]:
        """Clips with replay, compared with the dense ones; likewise."""
        return self._all(_generate, jobs, advance)

    def _all(self, work: Callable[[Scene, ReplaySettings], Any], jobs: Jobs, advance: Callable[[], None]) -> list[Any]:
        futures = []
        for scene, replay in jobs:
            pool = self._owner.setdefault(scene, self._pools[len(self._owner) % len(self._pools)])
            futures.append(pool.submit(work, scene, replay))
        found = []
        for future in futures:
            found.append(future.result())
            advance()
        return found


class _Worker:
    """What one process keeps."""

    def __init__(self, settings: FollowSettings) -> None:
        self.bundle = Bundle.open(settings.bundle, verify=False)
        self.backend = open_backend("onnxruntime", self.bundle, 1)
        self.decode = FrameDecoder(self.bundle)
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


_here: list[_Worker] = []  # of this process, made when it starts


def _open(settings: FollowSettings) -> None:
    _here[:] = [_Worker(settings)]


def _follow(scene: Scene, replay: ReplaySettings) -> Followed:
    return _here[0].follow(scene, replay)


def _generate(scene: Scene, replay: ReplaySettings) -> Generated:
    return _here[0].generate(scene, replay)
