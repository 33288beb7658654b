"""The importer of LLaMA checkpoints with video tokens in their vocabulary."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..clips import random_clips, read_clips
from ..imported import RANDOM_CLIPS, ImportedModel, check_prompts
from ..palette import code_colours
from .config import read_config
from .layout import NAME, check_layout, read_layout
from .weights import HuggingFaceSource

__all__ = ["load"]

NO_PICTURES = "its codes are shown as colours: no decoder of pictures comes with such a checkpoint"
RANDOM = "random codes: name clips in the frame layout, or generate some for --calibrate-on"


def load(folder: Path, frame_layout: Path | None) -> ImportedModel:
    """Without clips it is calibrated on random codes. CheckpointError or UsageError for what cannot be used."""
    config, path = read_config(folder / "config.json"), frame_layout or folder / NAME
    file = read_layout(path)
    layout = file.frame_layout
    check_layout(path, layout, config)
    check_prompts(path, file.prompt, layout, config.backbone.vocab)
    files = [path]
    if file.clips:
        files.append(path.parent / file.clips)
        clips = read_clips(files[-1], layout, config.backbone.vocab, "Correct it, or leave clips out.")
    else:
        prompts = np.stack([file.prompt.encode(phrase, layout.prompt_length) for phrase in file.prompt.known])
        clips = random_clips(layout, prompts, RANDOM_CLIPS)
    tokens = clips.tokens(layout)
    return ImportedModel(
        name=file.name,
        source=HuggingFaceSource(folder, config),
        layout=layout,
        prompts=file.prompt,
        pictures=lambda: code_colours(layout.codes),
        frame_rate=file.frame_rate,
        sampling=file.settings(),
        calibration=tokens,
        held_out=tokens if file.clips else None,
        notes=(NO_PICTURES,),
        calibrated_on=None if file.clips else RANDOM,
        files=tuple(files),
    )
