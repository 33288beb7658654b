"""``frame_layout.json``: where the video of a checkpoint lies in its vocabulary and its positions.

A language model's config.json says nothing of it, so its user writes this file, beside the weights or elsewhere.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, ValidationError

from ...toolkit.bundle.prompts import Prompts
from ...toolkit.config import FrameLayout, Frozen, check_separators
from ...toolkit.errors import CheckpointError, FastCarError
from ...toolkit.settings import SamplingSettings
from ...toolkit.validation import first_fault
from .config import HuggingFaceConfig

__all__ = ["EXAMPLE", "NAME", "LayoutFile", "check_layout", "read_layout"]

NAME = "frame_layout.json"
EXAMPLE = (
    '{"name": "my-model", "frame_layout": {"prompt_length": 4, "frames": 8, "grid": [16, 16], "code_offset": 256, '
    '"codes": 1024}, "prompt": {"pad": 0, "start": 1, "words": {"left": 2}, "phrases": ["left"]}}'
)


class Sampling(Frozen):
    """As ``SamplingSettings``; guidance needs a prompt that can be left empty."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    guidance: float = 1.0


class LayoutFile(Frozen):
    """``clips``: a safetensors file beside this one, of ``codes`` (clips, frames, cells) and ``prompts`` (clips,
    prompt_length), to calibrate with; None: random codes. ``frame_rate`` in frames a second.
    """

    name: str = Field(min_length=1)
    frame_layout: FrameLayout
    prompt: Prompts
    frame_rate: float = Field(8.0, gt=0, le=1000)
    sampling: Sampling = Sampling()
    clips: str | None = Field(None, min_length=1)

    def settings(self) -> SamplingSettings:
        """UsageError for values that make no sense."""
        return SamplingSettings(**self.sampling.model_dump())


def read_layout(path: Path) -> LayoutFile:
    """CheckpointError naming the key, with a complete example where there is no file."""
    try:
        layout = LayoutFile.model_validate_json(path.read_bytes(), strict=True)
        layout.settings()
        return layout
    except OSError as error:
        found = f"cannot be read ({error.strerror})"
        raise CheckpointError(path, found, f"a file such as {EXAMPLE}", "Write it, or give --frame-layout.") from error
    except ValidationError as error:
        where, why = first_fault(error)
        raise CheckpointError(path, f"{where or 'the file'}: {why}", f"keys as in {EXAMPLE}", "Correct it.") from error
    except FastCarError as error:
        where = str(error.subject).removeprefix("--")
        raise CheckpointError(path, f"sampling.{where}: {error.found}", error.expected, "Correct it.") from error


def check_layout(path: Path, layout: FrameLayout, config: HuggingFaceConfig) -> None:
    """CheckpointError where the video is not in the vocabulary, or longer than the model was made for."""
    last = layout.code_offset + layout.codes
    if last > config.backbone.vocab:
        found = f"codes up to {last - 1}"
        raise CheckpointError(path, found, f"less than vocab_size {config.backbone.vocab}", "Correct frame_layout.")
    if wrong := check_separators(layout, config.backbone.vocab):
        expected = f"less than vocab_size {config.backbone.vocab}"
        raise CheckpointError(path, wrong, expected, "Correct before_frame, after_row or after_frame.")
    if layout.trained_positions > config.positions:
        found = f"a clip of {layout.trained_positions} positions"
        expected = f"at most max_position_embeddings, {config.positions}"
        raise CheckpointError(path, found, expected, "Fewer frames: the model was not made for more positions.")
