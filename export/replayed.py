"""The float decoder with replay over whole clips at once: to train for replay, and to see what a criterion costs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch.nn import functional as F

from ..toolkit.config import FrameLayout
from .llama import Llama

__all__ = ["Decide", "by_score", "in_frames", "replayed_logits", "temporal_attention_scores"]

Decide = Callable[[int, torch.Tensor, torch.Tensor], torch.Tensor | None]
"""Layer, TAS (batch, frames, places), MLP inputs (batch, frames, places, hidden) -> which places replay, 1 or 0
(batch, frames, places), any in frame 0 ignored; None: none does."""


def replayed_logits(model: Llama, tokens: torch.Tensor, layout: FrameLayout, decide: Decide) -> torch.Tensor:
    """tokens (batch, positions) -> logits (batch, positions, vocab), MLP outputs replayed where ``decide`` says so.

    What a frame uses, a replayed value too, is what the next one replays (arXiv 2505.14709), so decisions of all frames
    may be given at once: a place uses the output of the last frame that computed it. Exact only as far as each layer's
    decisions depend on that layer's input, as TAS does. Gradients flow through decisions that have some.
    """
    length = tokens.shape[1]
    cos, sin = model.cos[:length], model.sin[:length]
    x = model.model.embed_tokens(tokens)
    for index, layer in enumerate(model.model.layers):
        seen: dict[str, torch.Tensor] = {}
        x = x + layer.self_attn(layer.input_layernorm(x), cos, sin, seen.__setitem__)
        normed = layer.post_attention_layernorm(x)
        output = layer.mlp(normed)
        scores = in_frames(temporal_attention_scores(seen["q"], seen["k"], layout), layout)
        replay = decide(index, scores, in_frames(normed, layout))
        if replay is not None:
            used = _used(in_frames(output, layout), replay).flatten(1, 2)[:, : length - layout.prompt_length]
            output = torch.cat([output[:, : layout.prompt_length], used], dim=1)
        x = x + output
    return model.lm_head(model.model.norm(x))


def temporal_attention_scores(q: torch.Tensor, k: torch.Tensor, layout: FrameLayout) -> torch.Tensor:
    """TAS (batch, positions) of rotated q (batch, heads, positions, head_dim) and k (batch, kv_heads, ...): the mean
    over heads of the pre-softmax logit towards the same place one frame earlier; 0 up to the end of frame 0."""
    places, first = layout.tokens_per_frame, layout.frame_start(1)
    k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
    dots = (q[:, :, first:] * k[:, :, layout.prompt_length : max(q.shape[2] - places, layout.prompt_length)]).sum(-1)
    return F.pad(dots.mean(dim=1) / math.sqrt(q.shape[-1]), (min(first, q.shape[2]), 0))


def in_frames(values: torch.Tensor, layout: FrameLayout) -> torch.Tensor:
    """(batch, positions, ...) -> (batch, frames, places, ...): without the prompt, the last frame filled by zeros."""
    own = values[:, layout.prompt_length :]
    missing = -own.shape[1] % layout.tokens_per_frame
    padded = F.pad(own, (*[0] * (2 * (own.ndim - 2)), 0, missing))
    return padded.unflatten(1, (-1, layout.tokens_per_frame))


def by_score(shares: Sequence[float], softness: float = 0.0) -> Decide:
    """The places of highest TAS replay, a share a layer of all after frame 0.

    ``softness`` above 0, in units of TAS: gradients as if the decision were a sigmoid that wide (straight-through).
    """

    def decide(layer: int, scores: torch.Tensor, normed: torch.Tensor) -> torch.Tensor:
        margin = scores - torch.quantile(scores[:, 1:].detach().flatten(), 1 - shares[layer])
        replay = (margin.detach() > 0).to(scores.dtype)
        if softness:
            soft = torch.sigmoid(margin / softness)
            replay = replay + soft - soft.detach()
        return replay

    return decide


def _used(computed: torch.Tensor, replay: torch.Tensor) -> torch.Tensor:
    """(batch, frames, places, hidden): each frame's own output, or what the frame before used."""
    frames = [computed[:, 0]]
    for own, flag in zip(computed.unbind(1)[1:], replay.unbind(1)[1:], strict=True):
        frames.append(torch.lerp(own, frames[-1], flag[..., None].to(own.dtype)))
    return torch.stack(frames, dim=1)
