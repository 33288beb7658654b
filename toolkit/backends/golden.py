"""The golden clip: what the reference computed when the bundle was made, and the check of a back end against it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from ..errors import BundleError
from ..numerics.tas import NEVER
from ..settings import ReplaySettings, SamplingSettings
from .protocol import Backend, FrameRecord

__all__ = ["START_STEPS", "check_golden", "record_golden"]

START_STEPS = 2  # enough to find a processor whose 8-bit products saturate, cheap enough for every start
STEPS_INTO_FRAME_1 = 8
SAMPLING = SamplingSettings(temperature=1.0, top_k=0, top_p=0.95, guidance=2.0)
COMPARED = {  # in the order a step computes them, with their axes
    "scores": ("step", "layer", "row"),
    "replay": ("step", "layer", "row"),
    "logits": ("step", "clip", "code"),
    "codes": ("step", "clip"),
}


def record_golden(backend: Backend, tokens: np.ndarray, path: Path) -> None:
    """Run frame 0 and the first steps of frame 1 of the prompts ``tokens`` (2, prompt_length) and store all of it.

    Odd layers replay whatever is eligible, even ones never do, so both ways are in the record.
    """
    layout, layers = backend.layout, backend.config.layers
    steps = layout.tokens_per_frame + min(STEPS_INTO_FRAME_1, layout.tokens_per_frame)
    clip = {
        "tokens": tokens,
        "uniforms": np.random.Philox(key=[0, 0]).random_raw(steps)[:, None].astype(np.uint64) >> np.uint64(40),
        "thresholds": np.where(np.arange(layers) % 2, -NEVER, NEVER),
    }
    clip["uniforms"] = clip["uniforms"].astype(np.int64)
    record = _run(backend, clip, steps)
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({**clip, **{name: getattr(record, name) for name in COMPARED}}, path)


def check_golden(backend: Backend, path: Path, steps: int | None = None) -> int:
    """Repeat the golden clip (its first ``steps``; None: all) and return how many steps were compared.

    BundleError naming step and layer (or code), and both values at the difference that a step computes first.
    """
    clip = load_file(path)
    steps = min(steps or len(clip["uniforms"]), len(clip["uniforms"]))
    record = _run(backend, clip, steps)
    differences = []
    for order, name in enumerate(COMPARED):
        found, expected = getattr(record, name), clip[name][:steps]
        for where in np.argwhere(found != expected)[:1]:
            differences.append((int(where[0]), order, name, tuple(map(int, where)), found, expected))
    if differences:
        _, _, name, where, found, expected = min(differences, key=lambda difference: difference[:2])
        place = ", ".join(f"{axis} {index}" for axis, index in zip(COMPARED[name], where, strict=True))
        raise BundleError(
            path,
            f"{backend.name} computes {name} {found[where]} at {place}",
            f"{expected[where]}, as the reference did",
            "Update onnxruntime, or use --backend reference and report this processor.",
        )
    return steps


def _run(backend: Backend, clip: dict[str, np.ndarray], steps: int) -> FrameRecord:
    layout = backend.layout
    backend.start(1, min(layout.positions, layout.prompt_length + steps), SAMPLING, ReplaySettings())
    backend.prefill(clip["tokens"][:, :-1])
    return backend.decode(clip["tokens"][:, -1], clip["uniforms"][:steps], clip["thresholds"])
