"""The float decoder with replay over whole clips at once: what a criterion costs, also one that no device has."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional as F

from ..toolkit.config import FrameLayout
from .llama import Llama

__all__ = ["Decide", "Seen", "by_lot", "by_score", "by_similarity", "replayed_logits"]


@dataclass(frozen=True)
class Seen:
    """Of one layer, what a criterion may look at: ``scores`` (batch, frames, places) TAS, 0 in frame 0; ``inputs`` and
    ``outputs`` of its MLP (batch, frames, places, hidden), the outputs as they would be without replay in it."""

    scores: torch.Tensor
    inputs: torch.Tensor
    outputs: torch.Tensor


Decide = Callable[[int, Seen], torch.Tensor | None]
"""Layer and what is seen there -> which places replay (batch, frames, places) bool, those of frame 0 ignored; None:
none does."""


def replayed_logits(model: Llama, tokens: torch.Tensor, layout: FrameLayout, decide: Decide) -> torch.Tensor:
    """tokens (batch, positions) -> logits (batch, positions, vocab), MLP outputs replayed where ``decide`` says so.

    What a frame uses, a replayed value too, is what the next one replays (arXiv 2505.14709), so decisions of all frames
    may be given at once: a place uses the output of the last frame that computed it.
    """
    length = tokens.shape[1]
    cos, sin = model.cos[:length], model.sin[:length]
    x = model.model.embed_tokens(tokens)
    for index, layer in enumerate(model.model.layers):
        heads: dict[str, torch.Tensor] = {}
        x = x + layer.self_attn(layer.input_layernorm(x), cos, sin, heads.__setitem__)
        normed = layer.post_attention_layernorm(x)
        output = layer.mlp(normed)
        scores = _scores(heads["q"], heads["k"], layout)
        seen = Seen(*(_in_frames(values, layout) for values in (scores, normed, output)))
        replay = decide(index, seen)
        if replay is not None:
            used = _used(seen.outputs, replay).flatten(1, 2)[:, : length - layout.prompt_length]
            output = torch.cat([output[:, : layout.prompt_length], used], dim=1)
        x = x + output
    return model.lm_head(model.model.norm(x))


def by_score(shares: Sequence[float]) -> Decide:
    """The places of highest TAS replay, a share a layer of all after frame 0."""
    return lambda layer, seen: seen.scores > torch.quantile(seen.scores[:, 1:].flatten(), 1 - shares[layer])


def by_lot(shares: Sequence[float], generator: torch.Generator) -> Decide:
    """A share a layer, drawn."""
    return lambda layer, seen: torch.rand(seen.scores.shape, generator=generator) < shares[layer]


def by_similarity(shares: Sequence[float], part: str) -> Decide:
    """The places replay whose MLP's ``part``, inputs or outputs, has in each frame the highest cosine with that of the
    frame whose output would be replayed; a share a layer and frame.

    By outputs it is a criterion that nobody can have who wants to save computing them.
    """

    def decide(layer: int, seen: Seen) -> torch.Tensor:
        values = getattr(seen, part)
        computed, replay = values[:, 0], [torch.zeros_like(values[:, 0, :, 0], dtype=torch.bool)]
        for own in values.unbind(1)[1:]:
            cosine = F.cosine_similarity(own, computed, dim=-1)
            replay.append(cosine > torch.quantile(cosine.flatten(), 1 - shares[layer]))
            computed = torch.where(replay[-1][..., None], computed, own)
        return torch.stack(replay, dim=1)

    return decide


def _scores(q: torch.Tensor, k: torch.Tensor, layout: FrameLayout) -> torch.Tensor:
    """TAS (batch, positions) of rotated q (batch, heads, positions, head_dim) and k (batch, kv_heads, ...): the mean
    over heads of the pre-softmax logit towards the same place one frame earlier; 0 up to the end of frame 0."""
    first, length = layout.frame_start(1), q.shape[2]
    k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
    earlier = k[:, :, layout.prompt_length : max(length - layout.tokens_per_frame, layout.prompt_length)]
    dots = (q[:, :, first:] * earlier).sum(-1)
    return F.pad(dots.mean(dim=1) / math.sqrt(q.shape[-1]), (min(first, length), 0))


def _in_frames(values: torch.Tensor, layout: FrameLayout) -> torch.Tensor:
    """(batch, positions, ...) -> (batch, frames, places, ...): without the prompt, the last frame filled by zeros."""
    own = values[:, layout.prompt_length :]
    missing = -own.shape[1] % layout.tokens_per_frame
    padded = F.pad(own, (*[0] * (2 * (own.ndim - 2)), 0, missing))
    return padded.unflatten(1, (-1, layout.tokens_per_frame))


def _used(computed: torch.Tensor, replay: torch.Tensor) -> torch.Tensor:
    """(batch, frames, places, hidden): each frame's own output, or what the frame before used."""
    frames = [computed[:, 0]]
    for own, flag in zip(computed.unbind(1)[1:], replay.unbind(1)[1:], strict=True):
        frames.append(torch.where(flag[..., None], frames[-1], own))
    return torch.stack(frames, dim=1)
