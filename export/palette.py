"""A decoder that shows codes as colours, for checkpoints without the decoder of their pictures."""

from __future__ import annotations

import colorsys

import torch

from .car.tokenizer import DecoderConfig, EncoderConfig, Stage, Tokenizer

__all__ = ["code_colours"]

GOLDEN_RATIO = 0.618033988749895  # steps of it around a circle never come close to an earlier one
SQUARE_LEVELS = 3  # 2^3 = 8 pixels a code, as a decoder of pictures has


@torch.no_grad()
def code_colours(codes: int) -> Tokenizer:
    """A tokenizer whose decoder paints a square of 8 x 8 pixels a code, neighbouring codes in different colours."""
    hues = [(index * GOLDEN_RATIO) % 1 for index in range(codes)]
    colours = [
        colorsys.hsv_to_rgb(hue, 0.45 + 0.5 * (index % 3) / 2, 0.95 - 0.5 * (index % 5) / 4)
        for index, hue in enumerate(hues)
    ]
    up = Stage(op="upsample", inputs=3, outputs=3)
    stages = (*[up] * SQUARE_LEVELS, Stage(op="conv", inputs=3, outputs=3, kernel=1, relu=False))
    tokenizer = Tokenizer(
        EncoderConfig(patch=4, channels=(1, 1), blocks=(1, 1)), DecoderConfig(embedding=3, stages=stages), codes
    )
    tokenizer.codebook.weight.copy_(torch.tensor(colours))
    last = tokenizer.decoder.stages[-1]
    last.weight.copy_(torch.eye(3)[:, :, None, None])
    last.bias.zero_()
    return tokenizer.eval()
