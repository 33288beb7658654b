"""Training of the tokenizer: reconstruction error, with more weight on the few pixels that are car or kerb."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from .tokenizer import DecoderConfig, EncoderConfig, Tokenizer

__all__ = ["CODES", "DECODER", "ENCODER", "TokenizerRecipe", "new_tokenizer", "psnr", "train_tokenizer"]

CODES = 512
ENCODER = EncoderConfig(patch=4, channels=(64, 96), blocks=(1, 1))
DECODER = DecoderConfig.pyramid(embedding=16, channels=(96, 64, 24, 16), blocks=(2, 1, 1, 0))


@dataclass(frozen=True)
class TokenizerRecipe:
    """AdamW with a cosine schedule. ``rare_weight``: how much more a pixel of car or kerb counts than others."""

    steps: int = 1000
    batch: int = 16
    rate: float = 2e-3
    warm_up: int = 30
    weight_decay: float = 1e-3
    commitment: float = 0.1
    absolute: float = 0.3
    rare_weight: float = 3.0


def new_tokenizer() -> Tokenizer:
    return Tokenizer(ENCODER, DECODER, CODES).to(memory_format=torch.channels_last)


def psnr(a: np.ndarray, b: np.ndarray) -> float:
    """a, b (..., height, width, 3) uint8 -> dB, from the mean squared error over everything."""
    error = np.square(a.astype(np.float32) - b.astype(np.float32)).mean(dtype=np.float64)
    return 10 * math.log10(255**2 / max(error, 1e-12))


def _pixel_weight(x: torch.Tensor, rare: float) -> torch.Tensor:
    """x (n, 3, height, width) -> (n, 1, height, width): the rare red and white pixels are the car and the kerbs."""
    red, green = x[:, :1], x[:, 1:2]
    return 1 + rare * ((red > green + 0.1) | (red > 0.7)).float()


def _rate(step: int, recipe: TokenizerRecipe) -> float:
    """Factor on the learning rate: linear warm-up, then half a cosine down to zero."""
    if step < recipe.warm_up:
        return (step + 1) / recipe.warm_up
    return 0.5 + 0.5 * math.cos(math.pi * (step - recipe.warm_up) / (recipe.steps - recipe.warm_up))


def train_tokenizer(
    frames: np.ndarray, recipe: TokenizerRecipe, seed: int, report: Callable[[int, float], None] = lambda *_: None
) -> Tokenizer:
    """frames (n, 64, 64, 3) uint8 -> a trained tokenizer; ``report(step, psnr)`` is called after every step."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    tokenizer = new_tokenizer().train()
    optimizer = torch.optim.AdamW(tokenizer.parameters(), recipe.rate, weight_decay=recipe.weight_decay)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate(step, recipe))
    for step in range(recipe.steps):
        x = _draw(frames, recipe.batch, rng)
        reconstruction, _, commitment = tokenizer(x)
        error = reconstruction - x
        weight = _pixel_weight(x, recipe.rare_weight)
        loss = (weight * (error.square() + recipe.absolute * error.abs())).mean() + recipe.commitment * commitment / 16
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(tokenizer.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        report(step, -10 * math.log10(error.square().mean().item() + 1e-12))
    return tokenizer.eval()


def _draw(frames: np.ndarray, batch: int, rng: np.random.Generator) -> torch.Tensor:
    """A batch of random frames, each mirrored with probability one half -> (batch, 3, 64, 64) in 0..1."""
    chosen = frames[rng.integers(len(frames), size=batch)]
    mirror = rng.random(batch) < 0.5
    chosen[mirror] = chosen[mirror, :, ::-1]
    x = torch.from_numpy(chosen).permute(0, 3, 1, 2).float() / 255
    return x.contiguous(memory_format=torch.channels_last)
