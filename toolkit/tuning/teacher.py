"""How far replay moves a model's predictions, along clips that the dense model generated."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..backends.protocol import Backend
from ..bundle.bundle import Bundle
from ..config import SAMPLED
from ..generation.control import ReplayControl, pooled_scores
from ..generation.run import generate, prompt_tokens
from ..settings import FULL_ATTENTION, AttentionSettings, ReplaySettings, SamplingSettings

__all__ = ["Followed", "Scene", "Teacher", "follow", "record_teacher"]


@dataclass(frozen=True)
class Scene:
    """One clip to generate."""

    prompt: str
    seed: int


@dataclass(frozen=True)
class Teacher:
    """A dense clip as a back end reads it.

    ``prompt`` (rows, prompt_length - 1) tokens; ``read``: of every step, tokens (rows,) int64 or codes (rows, D);
    ``predicted`` (steps, codes) float32: logits after guidance, with a depth transformer of a position's first code.
    """

    scene: Scene
    prompt: np.ndarray
    read: list[np.ndarray]
    predicted: np.ndarray
    codes: np.ndarray  # (frames, cells[, D])
    frames: int
    sampling: SamplingSettings
    attention: AttentionSettings


@dataclass(frozen=True)
class Followed:
    """A teacher's clip read with replay. ``divergence``: KL(dense || replayed) in nats a code, at temperature 1, over
    the frames after the first; ``shares`` (layers,): replayed of the eligible evaluations; ``scores`` (layers, n):
    what decides of these, in units of TAS."""

    divergence: float
    shares: np.ndarray
    scores: np.ndarray

    @property
    def ratio(self) -> float:
        return float(self.shares.mean())


def record_teacher(
    bundle: Bundle,
    backend: Backend,
    scene: Scene,
    *,
    frames: int | None = None,
    sampling: SamplingSettings | None = None,
    attention: AttentionSettings = FULL_ATTENTION,
) -> Teacher:
    """Generates the clip, dense. KeyboardInterrupt and DeviceError are raised."""
    manifest = bundle.manifest
    sampling = sampling or manifest.sampling
    run = generate(
        bundle,
        scene.prompt,
        frames=frames,
        seed=scene.seed,
        sampling=sampling,
        attention=attention,
        backend=backend,
        record_logits=True,
    )
    if not run.complete:
        raise run.fault or KeyboardInterrupt
    tokens = prompt_tokens(bundle, run.prompts, sampling)
    rows, layout = len(tokens), manifest.frame_layout
    if manifest.depth is None:
        following = [np.full(rows, token) for token in layout.flattened(run.codes)[0]]
    else:
        following = [np.tile(codes, (rows, 1)) for codes in run.codes[0].reshape(-1, run.codes.shape[-1])]
    logits = run.logits[0] if manifest.depth is None else run.logits[0][:, :, 0]
    read = [tokens[:, -1], *following[:-1]]
    predicted = logits.reshape(-1, logits.shape[-1])
    codes = run.codes[0]
    return Teacher(scene, tokens[:, :-1], read, predicted, codes, len(codes), sampling, attention)


def follow(bundle: Bundle, backend: Backend, teacher: Teacher, replay: ReplaySettings) -> Followed:
    """The same reading as the teacher's, with replay: the difference is of the decisions alone, not of other codes.

    A frame's steps are those that predict its codes. UsageError as ``generate``; ValueError for ``hold``, which
    follows what a run itself does.
    """
    if replay.hold is not None:
        raise ValueError("hold moves thresholds; expected fixed ones")
    manifest = bundle.manifest
    layout, depth, frames = manifest.frame_layout, manifest.depth, teacher.frames
    control = ReplayControl(replay, manifest.tas_unit, layout, frames, teacher.scene.seed)
    backend.start(1, layout.frame_start(frames), teacher.sampling, replay, teacher.attention, True)
    backend.prefill(teacher.prompt)
    draw = np.zeros((1, 1) if depth is None else (1, 1, depth.codes_per_position), np.int64)
    own = layout.pattern == SAMPLED
    divergences, flags, scores = [], [], []
    steps, predicted = iter(teacher.read), iter(teacher.predicted)
    for frame in range(frames):
        thresholds = control.thresholds(frame)
        for place in range(layout.tokens_per_frame):
            at = thresholds if thresholds.ndim == 1 else thresholds[place]
            record = backend.decode(next(steps), draw, at)
            if own[place]:
                expected = next(predicted)
                found = record.logits[0, 0] if depth is None else record.logits[0, 0, 0]
                if frame:
                    divergences.append(_divergence(expected, found))
            if frame > 1 or (frame == 1 and place):  # the first step of a frame reads the frame before
                flags.append(record.replay[0])
                scores.append(pooled_scores(record.scores[0], replay.policy))
    units = np.array(manifest.tas_unit)[:, None]
    by_layer = np.concatenate(scores, axis=1) * units
    return Followed(float(np.mean(divergences)), np.stack(flags).mean(axis=(0, 2)), by_layer)


def _divergence(expected: np.ndarray, found: np.ndarray) -> float:
    """KL divergence in nats of two rows of logits."""
    one, other = (_log_softmax(logits.astype(np.float64)) for logits in (expected, found))
    return float((np.exp(one) * (one - other)).sum())


def _log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits - logits.max()
    return shifted - np.log(np.exp(shifted).sum())
