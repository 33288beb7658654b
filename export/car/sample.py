"""Sampling clips from the float backbone, to look at what it has learned; users generate from a bundle instead."""

from __future__ import annotations

import numpy as np
import torch
from torch.nn import functional as F

from ..llama import Attention, Llama, apply_rotary
from .tokenizer import Tokenizer

__all__ = ["contact_sheet", "sample_codes"]


class _Cache:
    """Keys and values of all layers, (layers, 2, rows, kv_heads, positions, head_dim) float32."""

    def __init__(self, model: Llama, rows: int, positions: int) -> None:
        config = model.config
        self.values = torch.zeros(config.layers, 2, rows, config.kv_heads, positions, config.head_dim)
        self.length = 0


def _attend(
    attention: Attention, x: torch.Tensor, cache: torch.Tensor, start: int, cos: torch.Tensor, sin: torch.Tensor
) -> torch.Tensor:
    """x (rows, new, hidden) at positions ``start`` on; fills ``cache`` (2, rows, kv_heads, positions, head_dim)."""
    new = x.shape[1]
    q = apply_rotary(attention._split(attention.q_proj(x)), cos, sin)
    cache[0, :, :, start : start + new] = apply_rotary(attention._split(attention.k_proj(x)), cos, sin)
    cache[1, :, :, start : start + new] = attention._split(attention.v_proj(x))
    keys, values = (part[:, :, : start + new] for part in cache)
    mask = torch.ones(new, start + new, dtype=torch.bool).tril(start) if new > 1 else None
    mixed = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask, enable_gqa=True)
    return attention.o_proj(mixed.transpose(1, 2).flatten(2))


def _step(model: Llama, tokens: torch.Tensor, cache: _Cache) -> torch.Tensor:
    """tokens (rows, new) -> logits (rows, vocab) of the last one."""
    start, new = cache.length, tokens.shape[1]
    cos, sin = model.cos[start : start + new], model.sin[start : start + new]
    x = model.model.embed_tokens(tokens)
    for layer, kept in zip(model.model.layers, cache.values, strict=True):
        x = x + _attend(layer.self_attn, layer.input_layernorm(x), kept, start, cos, sin)
        x = x + layer.mlp(layer.post_attention_layernorm(x))
    cache.length += new
    return model.lm_head(model.model.norm(x[:, -1]))


@torch.no_grad()
def sample_codes(
    model: Llama,
    prompts: np.ndarray,
    codes: int,
    offset: int,
    *,
    guidance: float = 1.0,
    unconditional: np.ndarray | None = None,
    temperature: float = 1.0,
    top_k: int = 0,
    seed: int = 0,
    entries: int = 0,
) -> np.ndarray:
    """prompts (rows, prompt_length) token ids -> ``codes`` sampled codes (rows, codes) int64.

    ``guidance`` g mixes logits as u + g (c - u), u being those of the ``unconditional`` prompt (prompt_length,);
    ``top_k`` 0 keeps all codes; ``entries`` is the number of codes in the vocabulary (0: all after ``offset``).
    """
    generator = torch.Generator().manual_seed(seed)
    rows, guided = len(prompts), unconditional is not None and guidance != 1.0
    tokens = torch.from_numpy(np.concatenate([prompts, np.tile(unconditional, (rows, 1))]) if guided else prompts)
    cache = _Cache(model, len(tokens), tokens.shape[1] + codes)
    result = []
    for _ in range(codes):
        logits = _step(model, tokens, cache)[:, offset : offset + entries if entries else None]
        if guided:
            conditional, free = logits.chunk(2)
            logits = free + guidance * (conditional - free)
        logits = logits / temperature
        if top_k:
            logits[logits < logits.topk(top_k).values[:, -1:]] = -torch.inf
        chosen = torch.multinomial(logits.softmax(-1), 1, generator=generator)
        result.append(chosen)
        tokens = (chosen + offset).repeat(2 if guided else 1, 1)
    return torch.cat(result, 1).numpy()


@torch.no_grad()
def contact_sheet(tokenizer: Tokenizer, codes: np.ndarray) -> np.ndarray:
    """codes (rows, frames, height, width) -> one image (rows * 8 height, frames * 8 width, 3) uint8, a clip a row."""
    frames = tokenizer.decode(torch.from_numpy(codes.astype(np.int64)).flatten(0, 1)).unflatten(0, codes.shape[:2])
    return frames.permute(0, 2, 1, 3, 4).flatten(0, 1).flatten(1, 2).numpy()
