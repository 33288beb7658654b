"""The importer of the project's own checkpoints."""

from __future__ import annotations

from pathlib import Path

from ...toolkit.settings import SamplingSettings
from ..imported import ImportedModel, check_prompts, refuse_frame_layout
from ..source import LlamaSource
from .checkpoint import load_checkpoint, load_clips

__all__ = ["load"]

SAMPLING = SamplingSettings(temperature=1.0, top_k=50, top_p=1.0, guidance=2.0)


def load(folder: Path, frame_layout: Path | None) -> ImportedModel:
    """CheckpointError for what cannot be used, UsageError for a ``frame_layout``."""
    refuse_frame_layout(frame_layout)
    checkpoint = load_checkpoint(folder)
    config = checkpoint.config
    prompts = config.prompt
    check_prompts(folder / "config.json", prompts, config.frame_layout, config.backbone.vocab)
    clips = {name: load_clips(folder, name).tokens(config.frame_layout) for name in ("calibration", "heldout")}
    return ImportedModel(
        name=config.name,
        source=LlamaSource(checkpoint.llama),
        layout=config.frame_layout,
        prompts=prompts,
        pictures=lambda: checkpoint.tokenizer,
        frame_rate=config.frame_rate,
        sampling=SAMPLING,
        calibration=clips["calibration"],
        held_out=clips["heldout"],
    )
