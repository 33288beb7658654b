"""How probable given clips are to the deployed model."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from ..backends.protocol import Backend
from ..config import SAMPLED, FrameLayout
from ..settings import ReplaySettings, SamplingSettings

__all__ = ["code_losses", "cross_entropy", "frame_losses"]

CHUNK = 64  # positions whose logits are held at a time


def cross_entropy(
    backend: Backend,
    tokens: np.ndarray,
    on_position: Callable[[int, int], None] | None = None,
    codes: np.ndarray | None = None,
) -> float:
    """Nats per code: the mean of :func:`code_losses`, to hold against that of the float model."""
    return float(code_losses(backend, tokens, on_position, codes).mean())


def frame_losses(
    backend: Backend,
    prompts: np.ndarray,
    codes: np.ndarray,
    on_position: Callable[[int, int], None] | None = None,
) -> np.ndarray:
    """Nats per code of every frame, (clips, frames) float64: how probable clips are, however they were made, to a dense
    run of the deployed model; over the frames it tells where they leave what the model knows.

    ``prompts`` (clips, prompt_length) int64 as the bundle's ``prompts`` encode them; ``codes`` (clips,
    frames, cells[, D]) of whole frames. The mean is :func:`cross_entropy`. ValueError as there, and for codes of
    another number of cells or clips.
    """
    layout, depths = backend.layout, () if backend.depth is None else (backend.depth.codes_per_position,)
    clips, frames = codes.shape[:2]
    if codes.shape[2:] != (layout.cells, *depths) or prompts.shape != (clips, layout.prompt_length):
        found = f"prompts of shape {prompts.shape}, codes of {codes.shape}"
        cells = ", ".join(map(str, (layout.cells, *depths)))
        raise ValueError(f"{found}; expected (clips, {layout.prompt_length}) and (clips, frames, {cells})")
    if depths:
        flat = codes.astype(np.int64).reshape(clips, frames * layout.cells, *depths)
        losses = code_losses(backend, prompts, on_position, flat)
    else:
        tokens = np.concatenate([prompts, layout.flattened(codes)], axis=1)
        losses = code_losses(backend, tokens, on_position)
    return losses.reshape(clips, frames, -1).mean(axis=2)


def code_losses(
    backend: Backend,
    tokens: np.ndarray,
    on_position: Callable[[int, int], None] | None = None,
    codes: np.ndarray | None = None,
) -> np.ndarray:
    """Nats of every code, (clips, codes of a clip) float64, with a last axis D with a depth transformer.

    Of tokens (clips, positions) int64, prompts, codes and separators, each code predicted from all before it.
    Separators are read, but nobody has to guess them: they do not count. With a depth transformer: of ``codes``
    (clips, n, D) int64 behind tokens (clips, prompt_length). Dense and without guidance, in the integer arithmetic
    that generates. ``on_position``: called with the positions that are read and those to read. ValueError for clips
    without a code or longer than the model's context.
    """
    layout, end = backend.layout, backend.layout.prompt_length
    clips, positions = tokens.shape[0], tokens.shape[1] + (0 if codes is None else codes.shape[1])
    if not end < positions <= layout.positions:
        raise ValueError(f"{positions} positions; expected {end + 1} to {layout.positions}")
    if (codes is None) != (backend.depth is None) or (codes is not None and tokens.shape[1] != end):
        raise ValueError("codes apart from a whole prompt; expected with a depth transformer, and only then")
    backend.start(clips, positions, SamplingSettings(), ReplaySettings())
    own = layout.forced(end, positions - end) == SAMPLED
    if not own.any():
        raise ValueError(f"{positions} positions, none of them a code's; expected longer clips")
    backend.prefill(tokens[:, : end - 1])
    losses, done = [], 0
    for read, target in _chunks(tokens, codes, layout):
        logits = backend.score(read, None if codes is None else target).astype(np.float64)
        counted = own[done : done + target.shape[1]]
        logits, wanted = logits[counted], target.swapaxes(0, 1)[counted][..., None]
        peak = logits.max(axis=-1, keepdims=True)
        log_sum = peak + np.log(np.exp(logits - peak).sum(axis=-1, keepdims=True))
        losses.append((log_sum - np.take_along_axis(logits, wanted, axis=-1))[..., 0])
        done += target.shape[1]
        if on_position:
            on_position(end - 1 + done, positions - 1)
    return np.concatenate(losses).swapaxes(0, 1)


def _chunks(
    tokens: np.ndarray, codes: np.ndarray | None, layout: FrameLayout
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """What positions read and the codes after them, from the prompt's last token on, ``CHUNK`` at a time."""
    end = layout.prompt_length
    if codes is not None:
        yield tokens[:, end - 1 :], codes[:, :1]
        read, target = codes[:, :-1], codes[:, 1:]
    else:
        read, target = tokens[:, end - 1 : -1], tokens[:, end:] - layout.code_offset
    for first in range(0, read.shape[1], CHUNK):
        yield read[:, first : first + CHUNK], target[:, first : first + CHUNK]
