"""The golden clip: what the reference computed when the bundle was made, and the check of a back end against it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from ..config import BackboneConfig, FrameLayout
from ..errors import BundleError
from ..numerics.tas import NEVER
from ..settings import ReplaySettings, SamplingSettings
from .protocol import Backend, FrameRecord

__all__ = [
    "SAMPLING",
    "START_STEPS",
    "GoldenDifference",
    "check_golden",
    "first_of",
    "golden_length",
    "record_golden",
    "run_golden",
]

START_STEPS = 2  # enough to find a processor whose 8-bit products saturate, cheap enough for every start
STEPS_INTO_FRAME_1 = 8
SHORTENED_FROM = 10**11  # weights read in all, but the head's: some minutes of the reference
SHORT_PROMPT, SHORT_STEPS = 2, 3
SAMPLING = SamplingSettings(temperature=1.0, top_k=0, top_p=0.95, guidance=2.0)
COMPARED = {  # in the order a step computes them, with their axes
    "scores": ("step", "layer", "row"),
    "replay": ("step", "layer", "row"),
    "logits": ("step", "clip", "code"),
    "codes": ("step", "clip"),
}
DEPTH_AXES = {"logits": ("step", "clip", "depth", "code"), "codes": ("step", "clip", "depth")}


@dataclass(frozen=True)
class GoldenDifference:
    """The value that differs which a step computes first; ``place``: step and layer, or code, as text."""

    name: str
    place: str
    found: float
    expected: float

    def __str__(self) -> str:
        return f"{self.name} {self.found} at {self.place}; expected {self.expected}"


def golden_length(config: BackboneConfig, layout: FrameLayout) -> tuple[int, int]:
    """Tokens of the prompt, and steps."""
    steps = layout.tokens_per_frame + min(STEPS_INTO_FRAME_1, layout.tokens_per_frame)
    if config.layers * config.layer_weights * (layout.prompt_length + steps) > SHORTENED_FROM:
        return SHORT_PROMPT, SHORT_STEPS
    return layout.prompt_length, steps


def record_golden(backend: Backend, tokens: np.ndarray, path: Path) -> None:
    """Run frame 0 and the first steps of frame 1 of the prompts ``tokens`` (2, prompt_length) and store all of it.

    Odd layers replay whatever is eligible, even ones never do, so both ways are in the record. Of a model whose steps
    take the reference seconds, ``SHORT_STEPS`` behind the prompt's last ``SHORT_PROMPT`` tokens: nothing replays.
    """
    layers = backend.config.layers
    prompt, steps = golden_length(backend.config, backend.layout)
    tokens = tokens[:, -prompt:]
    shape = (steps, 1) if backend.depth is None else (steps, 1, backend.depth.codes_per_position)
    draws = np.random.Philox(key=[0, 0]).random_raw(math.prod(shape)) >> np.uint64(40)
    clip = {
        "tokens": tokens,
        "uniforms": draws.reshape(shape).astype(np.int64),
        "thresholds": np.where(np.arange(layers) % 2, -NEVER, NEVER),
    }
    record = _run(backend, clip, steps)
    path.parent.mkdir(parents=True, exist_ok=True)
    stored = {**clip, **{name: getattr(record, name) for name in COMPARED}}
    # safetensors writes the memory that an array begins in, whatever its strides are
    save_file({name: np.ascontiguousarray(array) for name, array in stored.items()}, path)


def check_golden(backend: Backend, path: Path, steps: int | None = None) -> int:
    """Repeat the golden clip (its first ``steps``; None: all) and return how many steps were compared.

    BundleError naming step and layer (or code), and both values at the difference that a step computes first.
    """
    record, expected = run_golden(backend, path, steps)
    if difference := first_of(record, expected):
        raise BundleError(
            path,
            f"{backend.name} computes {difference.name} {difference.found} at {difference.place}",
            f"{difference.expected}, as the reference did",
            "Update onnxruntime, or use --backend reference and report this processor.",
        )
    return len(record.codes)


def run_golden(backend: Backend, path: Path, steps: int | None = None) -> tuple[FrameRecord, FrameRecord]:
    """Repeat the golden clip, or its first ``steps``: what the back end records and what the reference did."""
    clip = load_file(path)
    steps = min(steps or len(clip["uniforms"]), len(clip["uniforms"]))
    record = _run(backend, clip, steps)
    return record, FrameRecord(record.first, seconds=0.0, **{name: clip[name][:steps] for name in COMPARED})


def first_of(found: FrameRecord, expected: FrameRecord) -> GoldenDifference | None:
    """Of all that differs in two records of one clip; None if nothing does.

    Of several codes a position, the logits of each follow from the codes before it.
    """
    differences = []
    for order, name in enumerate(COMPARED):
        one, other = getattr(found, name), getattr(expected, name)
        for where in np.argwhere(one != other)[:1]:
            depth = int(where[2]) if len(where) > len(COMPARED[name]) else -1
            differences.append((int(where[0]), depth, order, name, tuple(map(int, where)), one, other))
    if not differences:
        return None
    *_, name, where, one, other = min(differences, key=lambda difference: difference[:3])
    axes = COMPARED[name] if len(where) == len(COMPARED[name]) else DEPTH_AXES[name]
    place = ", ".join(f"{axis} {index}" for axis, index in zip(axes, where, strict=True))
    return GoldenDifference(name, place, one[where].item(), other[where].item())


def _run(backend: Backend, clip: dict[str, np.ndarray], steps: int) -> FrameRecord:
    layout = backend.layout
    backend.start(1, min(layout.positions, clip["tokens"].shape[1] + steps), SAMPLING, ReplaySettings())
    backend.prefill(clip["tokens"][:, :-1])
    return backend.decode(clip["tokens"][:, -1], clip["uniforms"][:steps], clip["thresholds"])
