"""The importer of VILA-U checkpoints."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from ...toolkit.config import DepthConfig, FrameLayout
from ..clips import positions_of_codes
from ..depth import CodeEmbedding, DepthTransformer
from ..huggingface.weights import HuggingFaceSource
from ..imported import RANDOM_CLIPS, ImportedModel, refuse_frame_layout
from ..vqgan import FloatVqgan
from ..vqgan_tensors import vqgan_stages
from .config import LLM, SAMPLING, read_config
from .layout import frame_layout
from .prompt import read_prompts
from .weights import VilaUVision

__all__ = ["load"]

FRAME_RATE = 8.0


def load(folder: Path, layout_file: Path | None) -> ImportedModel:
    """Calibrated on random codes, for a checkpoint brings no clips.

    CheckpointError or UsageError for what cannot be used.
    """
    refuse_frame_layout(layout_file)
    config = read_config(folder)
    prompts = read_prompts(folder, config)
    layout = frame_layout(folder, config, prompts)
    vision = VilaUVision(folder, config)
    return ImportedModel(
        name=folder.resolve().name,
        source=HuggingFaceSource(folder / LLM, config.llama),
        layout=layout,
        prompts=prompts,
        pictures=lambda: _pictures(vision),
        frame_rate=FRAME_RATE,
        sampling=SAMPLING,
        calibration=_random_clips(prompts.tokens(prompts.phrases[0]), layout, config.depth),
        depth=VilaUDepth(vision),
        calibrated_on="random codes, for no clips come with such a checkpoint: generate some for --calibrate-on",
    )


class VilaUDepth:
    """A ``DepthSource``."""

    def __init__(self, vision: VilaUVision) -> None:
        self._vision = vision
        self.config = vision.config.depth

    def embedding(self) -> CodeEmbedding:
        return self._vision.embedding()

    def transformer(self) -> DepthTransformer:
        return self._vision.depth()


def _pictures(vision: VilaUVision) -> FloatVqgan:
    config, decoder = vision.config, vision.pictures()
    depth, shape = config.depth.codes_per_position, config.pictures.latent_shape
    return FloatVqgan(vision.codebooks(), depth, config.grid, shape, vqgan_stages(decoder.state_dict()))


def _random_clips(prompt: list[int], layout: FrameLayout, depth: DepthConfig) -> torch.Tensor:
    """(clips, positions, 1 + D): every code as likely as another, behind a prompt without padding."""
    shape = (RANDOM_CLIPS, layout.frames * layout.cells, depth.codes_per_position)
    codes = np.random.default_rng(0).integers(layout.codes, size=shape)
    return torch.from_numpy(np.stack([positions_of_codes(prompt, clip) for clip in codes]))
