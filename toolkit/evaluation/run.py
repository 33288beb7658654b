"""One run of a sweep, and one calibration: functions of their task alone, so that they can be done in any process."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from ..backends.protocol import Backend
from ..backends.registry import open_backend
from ..bundle.bundle import Bundle
from ..generation.calibrate import thresholds_for_ratio
from ..generation.record import Generation
from ..generation.run import generate
from ..generation.score import cross_entropy
from ..settings import AttentionSettings, ReplaySettings, SamplingSettings
from ..video.decode import FrameDecoder
from .metrics import WINDOW, code_agreement, flicker, psnr, psnr_per_frame, ssim_per_frame
from .moved import MovedBytes

__all__ = ["Calibration", "Measured", "Run", "Subject", "perform"]


@dataclass(frozen=True)
class Subject:
    """What all runs on a bundle share. ``identity``: of its manifest; ``counted``: whether bytes are."""

    path: str
    identity: str
    frames: int
    sampling: SamplingSettings
    backend: str
    counted: bool


@dataclass(frozen=True)
class Calibration:
    """The threshold that gives ``ratio`` on one prompt."""

    key: str
    subject: Subject
    ratio: float
    replay: ReplaySettings
    attention: AttentionSettings
    prompt: str


@dataclass(frozen=True)
class Run:
    """``dense``: codes (frames, cells[, D]) of the reference run to compare with; None: this is the reference."""

    key: str
    subject: Subject
    replay: ReplaySettings
    attention: AttentionSettings
    prompt: str
    seed: int
    dense: np.ndarray | None = None


@dataclass(frozen=True)
class Measured:
    """``values``: what is written for people; ``codes``: (frames, cells[, D]) of a run."""

    values: dict[str, Any]
    codes: np.ndarray | None = None


def perform(task: Calibration | Run) -> Measured:
    """Bundles, back ends and the last decoded references are kept for the next task of this process."""
    return _calibrate(task) if isinstance(task, Calibration) else _run(task)


def _calibrate(task: Calibration) -> Measured:
    subject = task.subject
    found = thresholds_for_ratio(
        _bundle(subject.path),
        _backend(subject.path, subject.backend),
        task.prompt,
        task.ratio,
        frames=subject.frames,
        sampling=subject.sampling,
        replay=task.replay,
        attention=task.attention,
    )
    return Measured({"prompt": task.prompt, "ratio": task.ratio, **asdict(found)})


def _run(task: Run) -> Measured:
    subject = task.subject
    bundle = _bundle(subject.path)
    backend = _backend(subject.path, subject.backend)
    made = generate(
        bundle,
        task.prompt,
        frames=subject.frames,
        seed=task.seed,
        sampling=subject.sampling,
        replay=task.replay,
        attention=task.attention,
        backend=backend,
    )
    if not made.complete:
        raise made.fault or KeyboardInterrupt
    codes = made.codes[0]
    video = _decoded(subject.path, codes, made.grid)
    values = {
        "prompt": task.prompt,
        "seed": task.seed,
        "steps": made.replay.shape[0] * made.replay.shape[1],
        "seconds": float(made.seconds.sum()),
        "steps_per_second": made.steps_per_second,
        "replay_ratio": made.replay_ratio,
        "eligible_replay_ratio": made.eligible_replay_ratio,
        "skipped_ratio": made.skipped_ratio,
        "bytes_per_step": _moved(subject.path).per_step(made) if subject.counted else math.nan,
        "nll": _nll(bundle, backend, task.prompt, made),
        "flicker": flicker(video),
    }
    if task.dense is not None:
        values |= _comparison(_reference(subject.path, task.dense, made.grid), video, task.dense, codes)
    return Measured(values, codes)


def _comparison(reference: np.ndarray, video: np.ndarray, dense: np.ndarray, codes: np.ndarray) -> dict[str, Any]:
    wide = min(video.shape[1:3]) >= WINDOW
    decibels = psnr_per_frame(reference, video)
    return {
        "psnr_db": psnr(reference, video),
        "psnr_per_frame": decibels.tolist(),
        "identical_frames": int(np.isinf(decibels).sum()),
        "ssim": float(ssim_per_frame(reference, video).mean()) if wide else math.nan,
        "code_agreement": code_agreement(dense, codes),
    }


def _nll(bundle: Bundle, backend: Backend, prompt: str, made: Generation) -> float:
    """Nats a code of the run's codes, by the dense model without guidance."""
    layout = bundle.manifest.frame_layout
    tokens = bundle.prompts.encode(prompt, layout.prompt_length)[None]
    if bundle.manifest.depth is not None:
        return cross_entropy(backend, tokens, codes=made.codes.reshape(1, -1, made.codes.shape[-1]).astype(np.int64))
    return cross_entropy(backend, np.concatenate([tokens, layout.flattened(made.codes)], axis=1))


@cache
def _bundle(path: str) -> Bundle:
    return Bundle.open(Path(path), verify=False)  # verified before the sweep


@lru_cache(maxsize=1)
def _backend(path: str, name: str) -> Backend:
    """One thread: the processes share the cores. One back end at a time: weights may be large."""
    return open_backend(name, _bundle(path), threads=1)


@lru_cache(maxsize=1)
def _decoder(path: str) -> FrameDecoder:
    return FrameDecoder(_bundle(path), threads=1)


@lru_cache(maxsize=1)
def _moved(path: str) -> MovedBytes:
    return MovedBytes(_bundle(path))


_last: dict[tuple[str, bytes], np.ndarray] = {}  # runs against one reference follow each other


def _reference(path: str, codes: np.ndarray, grid: tuple[int, int]) -> np.ndarray:
    key = (path, codes.tobytes())
    if key not in _last:
        _last.clear()
        _last[key] = _decoded(path, codes, grid)
    return _last[key]


def _decoded(path: str, codes: np.ndarray, grid: tuple[int, int]) -> np.ndarray:
    return _decoder(path)(codes.reshape(-1, *grid, *codes.shape[2:]))
