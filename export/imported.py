"""What an importer makes of a checkpoint: the same of every format."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from ..toolkit.bundle.prompts import Prompts
from ..toolkit.bundle.text_prompts import TextPrompts
from ..toolkit.config import FrameLayout
from ..toolkit.errors import CheckpointError, UsageError
from ..toolkit.settings import SamplingSettings
from .car.tokenizer import Tokenizer
from .source import BackboneSource, DepthSource
from .vqgan import FloatVqgan

__all__ = ["RANDOM_CLIPS", "ImportedModel", "check_prompts", "refuse_frame_layout"]

RANDOM_CLIPS = 8  # to calibrate with, where a checkpoint brings none


@dataclass(frozen=True)
class ImportedModel:
    """A checkpoint, whose weights are read when they are needed. ``calibration`` and ``held_out`` (clips, positions)
    int64: prompt tokens and codes; None without any. ``calibrated_on``: what the former are, where they did not come
    with the checkpoint. ``notes``: what a user has to know of the result.

    ``depth``: of a model whose positions hold several codes. Its clips are (clips, positions, 1 + D): a token and
    ``TEXT``, or ``TEXT`` and the codes. ``pictures``: reads what makes pictures of codes. ``files``: that were read
    from outside of the checkpoint's folder, perhaps.
    """

    name: str
    source: BackboneSource
    layout: FrameLayout
    prompts: Prompts | TextPrompts
    pictures: Callable[[], Tokenizer | FloatVqgan]
    frame_rate: float
    sampling: SamplingSettings
    calibration: torch.Tensor
    held_out: torch.Tensor | None = None
    depth: DepthSource | None = None
    notes: tuple[str, ...] = ()
    files: tuple[Path, ...] = ()
    calibrated_on: str | None = None

    @property
    def all_notes(self) -> tuple[str, ...]:
        """``notes``, and what it is calibrated on."""
        return (*self.notes, f"calibrated on {self.calibrated_on}") if self.calibrated_on else self.notes


def refuse_frame_layout(frame_layout: Path | None) -> None:
    """UsageError if there is one, for a checkpoint that tells its own."""
    if frame_layout:
        found = "given for a checkpoint that has its own"
        raise UsageError("--frame-layout", found, "a Hugging Face checkpoint", "Leave it out.")


def check_prompts(path: Path, prompts: Prompts, layout: FrameLayout, vocab: int) -> None:
    """CheckpointError if a phrase or sequence cannot be encoded, there is none, or a word's token is a code's.

    A sequence may hold codes: a model whose context frames have those of the frames it predicts.
    """
    ids = (prompts.pad, prompts.start, *prompts.words.values())
    codes = range(layout.code_offset, layout.code_offset + layout.codes)
    outside = [token for token in ids if not 0 <= token < vocab or token in codes]
    if outside or not prompts.known:
        found = f"prompt token {outside[0]}" if outside else "no phrases and no sequences"
        expected = f"tokens below {vocab} that are no codes ({codes.start} to {codes.stop - 1}), and phrases"
        raise CheckpointError(path, found, expected, "Correct `prompt`.")
    for phrase in prompts.known:
        try:
            ids = prompts.encode(phrase, layout.prompt_length)
        except UsageError as error:
            raise CheckpointError(
                path, f"phrase {phrase!r}: {error.found}", error.expected, "Correct `prompt`."
            ) from error
        if ids.min() < 0 or ids.max() >= vocab:
            found = f"sequence {phrase!r} holds {ids.min() if ids.min() < 0 else ids.max()}"
            raise CheckpointError(path, found, f"tokens below {vocab}", "Correct `prompt`.")
