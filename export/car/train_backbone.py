"""Training of the backbone on clips of codes: next-code prediction, prompts dropped now and then for guidance."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from ...toolkit.config import BackboneConfig, FrameLayout
from ..llama import Llama
from .checkpoint import ClipSet
from .dataset import Clips
from .muon import Muon
from .prompt import CODE_OFFSET, car_prompts
from .train_tokenizer import CODES

__all__ = ["BACKBONE", "LAYOUT", "BackboneRecipe", "ClipSource", "code_losses", "train_backbone"]

LAYOUT = FrameLayout(prompt_length=4, frames=16, grid=(8, 8), code_offset=CODE_OFFSET, codes=CODES)
BACKBONE = BackboneConfig(hidden=256, layers=6, heads=8, kv_heads=4, head_dim=32, mlp=704, vocab=CODE_OFFSET + CODES)


@dataclass(frozen=True)
class BackboneRecipe:
    """Muon for the matrices of the layers, AdamW for embedding, head and norms; warm-up, plateau, linear decay to zero.

    The first ``short_steps`` see only ``short_frames`` frames of ``short_batch`` clips: attention to what is near is
    learned first, at less cost. ``drop_prompt``: share of clips whose words become padding; ``average``: decay of the
    running mean of the weights, which is what training returns.
    """

    steps: int = 800
    batch: int = 4
    short_steps: int = 300
    short_frames: int = 6
    short_batch: int = 8
    matrix_rate: float = 0.02
    vector_rate: float = 3e-3
    weight_decay: float = 0.02
    warm_up: int = 20
    decay_from: float = 0.35
    drop_prompt: float = 0.1
    average: float = 0.98

    @property
    def clips(self) -> int:
        """Clips seen in all."""
        return self.short_steps * self.short_batch + (self.steps - self.short_steps) * self.batch


@dataclass(frozen=True)
class ClipSource:
    """``codes`` (frames, 8, 8) uint16 of all episodes end to end, and the labelled clips in them."""

    codes: np.ndarray
    clips: Clips

    def draw(self, step: int, recipe: BackboneRecipe, rng: np.random.Generator) -> torch.Tensor:
        """The batch of ``step``: token ids (batch, positions) int64 of balanced clips, some without their words."""
        short = step < recipe.short_steps
        number = recipe.short_batch if short else recipe.batch
        chosen = rng.choice(len(self.clips.phrase), size=number, p=self.balanced())
        tokens = self.tokens(chosen, rng.random(number) >= recipe.drop_prompt)
        return tokens[:, : LAYOUT.frame_start(recipe.short_frames)] if short else tokens

    def tokens(self, chosen: np.ndarray, keep_prompt: np.ndarray | None = None) -> torch.Tensor:
        """Clip numbers (batch,) -> token ids (batch, positions) int64, without words where ``keep_prompt`` is false."""
        prompts = car_prompts()
        phrases = [prompts.phrases[self.clips.phrase[clip]] for clip in chosen]
        kept = keep_prompt if keep_prompt is not None else np.ones(len(chosen), bool)
        text = [
            prompts.encode(phrase, LAYOUT.prompt_length) if keep else prompts.unconditional(LAYOUT.prompt_length)
            for phrase, keep in zip(phrases, kept, strict=True)
        ]
        return ClipSet(self.clip_codes(chosen), np.stack(text)).tokens(LAYOUT)

    def clip_codes(self, chosen: np.ndarray) -> np.ndarray:
        """Clip numbers (batch,) -> codes (batch, frames, cells) uint16."""
        frames = self.clips.start[chosen][:, None] + np.arange(self.clips.frames)
        return self.codes[frames].reshape(*frames.shape, -1)

    def balanced(self) -> np.ndarray:
        """Probability of each clip (clips,): a phrase is drawn in proportion to the square root of its count."""
        weight = 1 / np.sqrt(np.bincount(self.clips.phrase)[self.clips.phrase])
        return weight / weight.sum()


def code_losses(
    model: nn.Module, tokens: torch.Tensor, layout: FrameLayout = LAYOUT, *, codes_alone: bool = False
) -> torch.Tensor:
    """tokens (batch, positions) -> -log p of every code (batch, frames * tokens per frame), in nats.

    Among all tokens, as it is trained; ``codes_alone``: among the codes, as clips are sampled.
    """
    logits = model(tokens[:, :-1])[:, layout.prompt_length - 1 :]
    target = tokens[:, layout.prompt_length :]
    if codes_alone:
        logits = logits[..., layout.code_offset : layout.code_offset + layout.codes]
        target = target - layout.code_offset
    return F.cross_entropy(logits.flatten(0, 1), target.flatten(), reduction="none").view_as(target)


def _initialize(model: Llama) -> None:
    """Small embeddings, and layers that start as the identity: the residual stream stays moderate."""
    for name, parameter in model.named_parameters():
        if parameter.ndim < 2:
            continue
        if "o_proj" in name or "down_proj" in name or "lm_head" in name:
            nn.init.zeros_(parameter)
        else:
            nn.init.normal_(parameter, std=0.3 if "embed" in name else 0.6 / math.sqrt(parameter.shape[1]))


def _rate(step: int, recipe: BackboneRecipe) -> float:
    start = recipe.steps * recipe.decay_from
    return min((step + 1) / recipe.warm_up, 1.0, (recipe.steps - step) / (recipe.steps - start))


def _optimizers(model: Llama, recipe: BackboneRecipe) -> tuple[torch.optim.Optimizer, ...]:
    matrices = [p for p in model.model.layers.parameters() if p.ndim == 2]
    norms = [p for p in model.parameters() if p.ndim == 1]
    tables = [model.model.embed_tokens.weight, model.lm_head.weight]
    return (
        Muon(matrices, recipe.matrix_rate, weight_decay=recipe.weight_decay),
        torch.optim.AdamW(tables, recipe.vector_rate, betas=(0.9, 0.95), weight_decay=0.01),
        torch.optim.AdamW(norms, recipe.vector_rate, betas=(0.9, 0.95), weight_decay=0.0),
    )


def train_backbone(
    source: ClipSource,
    recipe: BackboneRecipe,
    seed: int,
    report: Callable[[int, float, Llama], None] = lambda *_: None,
) -> Llama:
    """A trained backbone; ``report(step, nats per code of the batch, mean weights)`` after every step."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    model = Llama(BACKBONE, LAYOUT.positions)
    _initialize(model)
    mean = copy.deepcopy(model).requires_grad_(False)
    optimizers = _optimizers(model, recipe)
    schedules = [
        torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate(step, recipe)) for optimizer in optimizers
    ]
    for step in range(recipe.steps):
        loss = code_losses(model, source.draw(step, recipe, rng)).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer, schedule in zip(optimizers, schedules, strict=True):
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            schedule.step()
        torch._foreach_lerp_(
            list(mean.parameters()), list(model.parameters()), 1 - min(recipe.average, step / (step + 10))
        )
        report(step, loss.item(), mean)
    return mean.eval()
