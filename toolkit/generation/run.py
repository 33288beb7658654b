"""The generation loop: the same for every back end."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from ..backends.protocol import Backend, FrameRecord, joined, next_read
from ..backends.registry import open_backend
from ..bundle.bundle import Bundle
from ..config import DepthConfig, FrameLayout
from ..errors import DeviceError, UsageError
from ..settings import FULL_ATTENTION, AttentionSettings, ReplaySettings, SamplingSettings
from .control import ReplayControl
from .record import Generation

__all__ = ["OnFrame", "check_frames", "check_seed", "frames_within", "generate", "prompt_tokens", "uniforms"]

OnFrame = Callable[[int, np.ndarray], None]
"""Called with the frame's number and its codes (clips, height, width[, D]) as soon as they exist."""


def generate(
    bundle: Bundle | str | Path,
    prompt: str | Sequence[str],
    *,
    frames: int | None = None,
    seed: int = 0,
    sampling: SamplingSettings | None = None,
    replay: ReplaySettings | None = None,
    attention: AttentionSettings | None = None,
    backend: Backend | str = "onnxruntime",
    record_logits: bool = False,
    on_frame: OnFrame | None = None,
) -> Generation:
    """Generate one clip a prompt, all in one batch. ``bundle``: open, or its folder or archive.

    ``frames`` None: as many as the model was trained for; ``sampling`` None: the bundle's; ``replay`` None: dense;
    ``attention`` None: every position sees all before it.
    The same bundle, prompt, settings and seed give the same codes on any machine and back end. Ctrl-C keeps the
    finished frames and sets ``interrupted``, a failing device sets ``fault``; before the first is finished either is
    raised. UsageError for an unusable
    prompt or number of frames, before any work.

    Example::

        bundle = fastcar.Bundle.open("car-w8a8")
        clip = fastcar.generate(bundle, "left turn", frames=4, seed=1)
        print(clip.codes.shape)  # (1, 4, 64)
    """
    if not isinstance(bundle, Bundle):
        bundle = Bundle.open(bundle)
    layout = bundle.manifest.frame_layout
    prompts = (prompt,) if isinstance(prompt, str) else tuple(prompt)
    frames = check_frames(bundle, frames)
    sampling = sampling or bundle.manifest.sampling
    replay = replay or ReplaySettings()
    attention = attention or FULL_ATTENTION
    tokens = prompt_tokens(bundle, prompts, sampling)
    control = ReplayControl(replay, bundle.manifest.tas_unit, layout, frames, check_seed(seed))
    depth = bundle.manifest.depth
    draws = uniforms(seed, len(prompts), frames * layout.tokens_per_frame, depth and depth.codes_per_position)
    if isinstance(backend, str):
        backend = open_backend(backend, bundle)
    backend.start(len(prompts), layout.frame_start(frames), sampling, replay, attention, record_logits)

    records: list[FrameRecord] = []
    cells = layout.cell_places
    interrupted, fault = False, None
    try:
        backend.prefill(tokens[:, :-1])
        current = tokens[:, -1]
        for frame in range(frames):
            first = frame * layout.tokens_per_frame
            own = draws[first : first + layout.tokens_per_frame]
            record = _decode(backend, current, own, control.thresholds(frame), layout, depth)
            control.observe(frame, record)
            records.append(record)
            last = layout.frame_start(frame + 1) - 2
            current = next_read(last, record.codes[-1], tokens.shape[0], layout, depth)
            if on_frame:
                on_frame(frame, _by_clip(record.codes[cells], layout.grid))
    except KeyboardInterrupt:
        if not records:
            raise
        interrupted = True
    except DeviceError as error:
        if not records:
            raise
        fault = error
    generation = _generation(bundle, prompts, replay, attention, records, record_logits)
    generation = replace(generation, offsets=np.array(control.offsets[: len(records)]))
    return replace(generation, interrupted=interrupted, fault=fault)


def check_frames(bundle: Bundle, frames: int | None) -> int:
    """The number of frames to generate; UsageError outside 1 .. what there is room for."""
    return frames_within(bundle.manifest.name, bundle.manifest.frame_layout, frames)


def frames_within(model: str, layout: FrameLayout, frames: int | None) -> int:
    """The same for a model that is not in a bundle yet."""
    if frames is None:
        return layout.frames
    if not 1 <= frames <= layout.room:
        longer = f"Ask for fewer frames, or export with --max-frames {frames} to have room for them."
        expected = f"1 to {layout.room}, the frames the bundle has room for; {model} was trained for {layout.frames}"
        if layout.room == layout.frames:
            expected = f"1 to {layout.frames}, the context {model} was trained for"
        raise UsageError("--frames", str(frames), expected, longer if frames > 1 else "Ask for at least one.")
    return frames


def check_seed(seed: int) -> int:
    """UsageError outside 0 .. 2^64 - 1; TypeError for what is not an integer."""
    if not 0 <= operator.index(seed) < 1 << 64:
        raise UsageError("--seed", str(seed), "0 to 2^64 - 1", "Choose another seed.")
    return operator.index(seed)


def uniforms(seed: int, clips: int, steps: int, codes_per_position: int | None = None) -> np.ndarray:
    """(steps, clips) int64 below 2^24: the high bits of Philox-4x64-10, key (seed, clip), whose stream NumPy keeps.

    (steps, clips, ``codes_per_position``) for a depth transformer: a clip's draws in the order of its codes.
    """
    keys = [np.array([check_seed(seed), clip], np.uint64) for clip in range(clips)]
    shape = (steps,) if codes_per_position is None else (steps, codes_per_position)
    raw = [np.random.Philox(key=key).random_raw(math.prod(shape)) >> np.uint64(40) for key in keys]
    return np.stack([draws.reshape(shape) for draws in raw], axis=1).astype(np.int64)


def prompt_tokens(bundle: Bundle, prompts: tuple[str, ...], sampling: SamplingSettings) -> np.ndarray:
    """(rows, prompt_length): the clips' own prompts, then, with guidance, as many unconditional ones."""
    if not prompts:
        raise UsageError("prompts", "none", "at least one", "Name a scene.")
    length = bundle.manifest.frame_layout.prompt_length
    rows = [bundle.prompts.encode(prompt, length) for prompt in prompts]
    if sampling.guided:
        rows += [bundle.prompts.unconditional(length)] * len(prompts)
    return np.stack(rows)


def _decode(
    backend: Backend,
    tokens: np.ndarray,
    draws: np.ndarray,
    thresholds: np.ndarray,
    layout: FrameLayout,
    depth: DepthConfig | None,
) -> FrameRecord:
    """A frame at once, or step by step where ``thresholds`` (steps, layers) has a row for each."""
    if thresholds.ndim == 1:
        return backend.decode(tokens, draws, thresholds)
    parts: list[FrameRecord] = []
    for own, at_step in zip(draws[:, None], thresholds, strict=True):
        parts.append(backend.decode(tokens, own, at_step))
        tokens = next_read(parts[-1].first, parts[-1].codes[-1], tokens.shape[0], layout, depth)
    return joined(parts)


def _generation(
    bundle: Bundle,
    prompts: tuple[str, ...],
    replay: ReplaySettings,
    attention: AttentionSettings,
    records: list[FrameRecord],
    record_logits: bool,
) -> Generation:
    """Codes by the step that predicts them, TAS and decisions by the position that was read, separators included."""
    manifest = bundle.manifest
    layout, layers = manifest.frame_layout, manifest.config.layers
    frames, places = len(records), layout.tokens_per_frame
    codes = np.concatenate([record.codes for record in records])
    scores = np.concatenate([record.scores for record in records])[1:]  # the first step reads the prompt's last token
    flags = np.concatenate([record.replay for record in records])[1:]
    rows = flags.shape[2]
    tas = np.full((frames * places, layers, rows), np.nan, np.float32)
    tas[places:-1] = scores[places:] * np.array(manifest.tas_unit)[:, None]
    decided = np.zeros((frames * places, layers, rows), np.bool_)
    decided[:-1] = flags
    logits = np.concatenate([record.logits for record in records]) if record_logits else None
    cells = layout.cell_places
    return Generation(
        prompts=prompts,
        codes=_by_clip(codes, (frames, places))[:, :, cells].astype(np.int32),
        tas=tas.reshape(frames, places, layers, rows),
        replay=decided.reshape(frames, places, layers, rows),
        thresholds=replay.thresholds or (None,) * layers,
        seconds=np.array([record.seconds for record in records]),
        grid=layout.grid,
        cell_places=tuple(cells.tolist()),
        attention=attention,
        logits=None if logits is None else _by_clip(logits, (frames, places))[:, :, cells],
    )


def _by_clip(recorded: np.ndarray, positions: tuple[int, ...]) -> np.ndarray:
    """(steps, clips, ...) -> (clips, *positions, ...)."""
    _, clips, *rest = recorded.shape
    return recorded.swapaxes(0, 1).reshape(clips, *positions, *rest)
