"""A whole clip: steps sampled in the middle of its frames, dense, with replay, and with scheduling as well."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ...hls.modes import MODES
from ..config import FrameLayout
from ..program.memory import BEAT_BYTES
from .decisions import replay_masks
from .step import StepCounter, StepCounts, total, whole

__all__ = ["ClipCounts", "Replay", "clip_counts"]

SAMPLED_FRAMES = 8
SAMPLED_STEPS = 4  # of a frame: decisions are dealt over them


@dataclass(frozen=True)
class Replay:
    """``ratio``: of the eligible evaluations, those of the frames after the first."""

    ratio: float
    policy: str


@dataclass(frozen=True)
class ClipCounts:
    """One mode. ``step``: mean over the frames' steps; ``frames``: by frame, the mean of its steps, cycles;
    ``prompt_cycles``: of all positions that are read before the first code is chosen."""

    mode: str
    step: StepCounts
    frames: tuple[float, ...]
    prompt_cycles: float
    tokens_per_frame: int

    @property
    def cycles_per_step(self) -> float:
        return whole(self.step).cycles

    @property
    def bytes_per_step(self) -> float:
        return BEAT_BYTES * whole(self.step).beats

    @property
    def cycles_per_frame(self) -> float:
        return self.tokens_per_frame * self.cycles_per_step

    @property
    def cycles_per_clip(self) -> float:
        """With the prompt's steps."""
        return self.prompt_cycles + self.tokens_per_frame * sum(self.frames)


def clip_counts(
    counter: StepCounter,
    layout: FrameLayout,
    layers: int,
    rows: int,
    replay: Replay | None,
    advance: Callable[[int, int], None] = lambda done, total: None,
    modes: tuple[str, ...] = MODES,
) -> dict[str, ClipCounts]:
    """By mode; without ``replay`` dense only. ``advance(done, total)`` is called as frames are counted."""
    modes = modes if replay else MODES[:1]
    sampled = sorted({round(f) for f in np.linspace(0, layout.frames - 1, min(layout.frames, SAMPLED_FRAMES))})
    steps = min(SAMPLED_STEPS, layout.tokens_per_frame)
    prompt_cycles, unpredicted = 0.0, layout.prompt_length - 1  # its last step predicts the first frame's first code
    if unpredicted:
        prompt = counter.counts((unpredicted - 1) // 2, np.zeros((1, layers), np.uint32), True)
        prompt_cycles = unpredicted * whole(prompt).cycles
    masks = replay_masks(steps, layers, rows, replay.ratio, replay.policy) if replay else None
    found: dict[str, list[StepCounts]] = {mode: [] for mode in modes}
    for done, frame in enumerate(sampled):
        position = layout.frame_start(frame) + (layout.tokens_per_frame - steps) // 2
        dense = counter.counts(position + steps // 2, np.zeros((1, layers), np.uint32), False)
        for mode in modes:
            if mode == "dense" or frame == 0 or masks is None:  # the first frame never replays
                found[mode].append(dense)
            else:
                found[mode].append(counter.counts(position, masks, mode == "replay+drs"))
        advance(done + 1, len(sampled))
    weights = _shares(sampled, layout.frames)
    clips = {}
    for mode, counts in found.items():
        step = total([(one, weight / layout.frames) for one, weight in zip(counts, weights, strict=True)])
        cycles = [whole(one).cycles for one in counts]
        frames = np.interp(range(layout.frames), sampled, cycles)
        if layout.frames > 1 and len(sampled) < layout.frames:
            frames[1:] = np.interp(range(1, layout.frames), sampled[1:], cycles[1:])  # only the first is dense
        clips[mode] = ClipCounts(mode, step, tuple(map(float, frames)), prompt_cycles, layout.tokens_per_frame)
    return clips


def _shares(sampled: list[int], frames: int) -> list[float]:
    """How many frames each sampled one stands for: the first for itself, since it alone is dense."""
    if len(sampled) == frames:
        return [1.0] * frames
    rest = np.arange(1, frames)
    shares = [1.0]
    for index in range(1, len(sampled)):
        unit = np.zeros(len(sampled) - 1)
        unit[index - 1] = 1.0
        shares.append(float(np.interp(rest, sampled[1:], unit).sum()))
    return shares
