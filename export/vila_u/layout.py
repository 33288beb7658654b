"""Where the video of a VILA-U model lies: behind room for a prompt, without separators."""

from __future__ import annotations

from pathlib import Path

from ...toolkit.bundle.text_prompts import TextPrompts
from ...toolkit.config import FrameLayout
from ...toolkit.errors import CheckpointError
from .config import FRAMES, LLM, VilaUConfig

__all__ = ["frame_layout"]

ROOM = 64  # tokens of a prompt's own words


def frame_layout(folder: Path, config: VilaUConfig, prompts: TextPrompts) -> FrameLayout:
    """CheckpointError for a context that is too short for a prompt and the frames of a clip."""
    layout = FrameLayout(
        prompt_length=len(prompts.tokens("")) + ROOM,
        frames=FRAMES,
        grid=config.grid,
        code_offset=0,
        codes=config.codes,
    )
    if layout.positions > config.llama.positions:
        found = f"max_position_embeddings {config.llama.positions}"
        expected = f"at least {layout.positions}, a prompt and {FRAMES} frames"
        raise CheckpointError(folder / LLM / "config.json", found, expected, "Choose another checkpoint.")
    return layout
