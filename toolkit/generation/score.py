"""How probable given clips are to the deployed model."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..backends.protocol import Backend
from ..settings import ReplaySettings, SamplingSettings

__all__ = ["cross_entropy"]

CHUNK = 64  # positions whose logits are held at a time


def cross_entropy(backend: Backend, tokens: np.ndarray, on_position: Callable[[int, int], None] | None = None) -> float:
    """Nats per code of tokens (clips, positions) int64, prompts and codes, each code predicted from all before it.

    Dense and without guidance, in the integer arithmetic that generates: the figure to hold against that of the
    float model. ValueError for clips without a code or longer than the model's context.
    """
    layout = backend.layout
    clips, positions = tokens.shape
    if not layout.prompt_length < positions <= layout.positions:
        raise ValueError(f"{positions} positions; expected {layout.prompt_length + 1} to {layout.positions}")
    backend.start(clips, positions, SamplingSettings(), ReplaySettings())
    backend.prefill(tokens[:, : layout.prompt_length - 1])
    total = 0.0
    for first in range(layout.prompt_length - 1, positions - 1, CHUNK):
        last = min(first + CHUNK, positions - 1)
        logits = backend.score(tokens[:, first:last]).astype(np.float64)
        target = tokens[:, first + 1 : last + 1].T[..., None] - layout.code_offset
        peak = logits.max(axis=-1, keepdims=True)
        log_sum = peak + np.log(np.exp(logits - peak).sum(axis=-1, keepdims=True))
        total += float((log_sum - np.take_along_axis(logits, target, axis=-1)).sum())
        if on_position:
            on_position(last, positions - 1)
    return total / (clips * (positions - layout.prompt_length))
