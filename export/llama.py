"""The LLaMA-style decoder in float: what is trained, what quantization starts from, what quality is compared with."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F

from ..toolkit.config import BackboneConfig
from ..toolkit.numerics.rope import inverse_frequencies

__all__ = ["DecoderLayer", "Llama", "RMSNorm", "apply_rotary", "rotary_tables"]

Observe = Callable[[str, torch.Tensor], None]


def rotary_tables(config: BackboneConfig, positions: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosine and sine (positions, head_dim / 2) float32 of rotary embedding (arXiv 2104.09864, eq. 34)."""
    frequencies, factor = inverse_frequencies(config)
    angle = torch.outer(torch.arange(positions, dtype=torch.float64), torch.tensor(frequencies))
    return (factor * angle.cos()).float(), (factor * angle.sin()).float()


def apply_rotary(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Turn the pairs (i, i + head_dim / 2) of x (..., positions, head_dim): the half-split layout of Hugging Face."""
    low, high = x.chunk(2, dim=-1)
    return torch.cat((low * cos - high * sin, high * cos + low * sin), dim=-1)


class RMSNorm(nn.Module):
    """x / sqrt(mean(x^2) + eps) * weight over the last axis."""

    def __init__(self, hidden: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden))
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x, (x.shape[-1],), self.weight, self.eps)


class Attention(nn.Module):
    """Causal grouped-query attention over a whole clip."""

    def __init__(self, config: BackboneConfig) -> None:
        super().__init__()
        self.config = config
        inner, kv = config.heads * config.head_dim, config.kv_heads * config.head_dim
        self.q_proj = nn.Linear(config.hidden, inner, bias=config.attention_bias)
        self.k_proj = nn.Linear(config.hidden, kv, bias=config.attention_bias)
        self.v_proj = nn.Linear(config.hidden, kv, bias=config.attention_bias)
        self.o_proj = nn.Linear(inner, config.hidden, bias=config.attention_bias)

    def _split(self, x: torch.Tensor) -> torch.Tensor:
        return x.unflatten(-1, (-1, self.config.head_dim)).transpose(1, 2)

    def forward(
        self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, observe: Observe = lambda name, x: None
    ) -> torch.Tensor:
        """``observe``: called with queries, keys and values (batch, heads, positions, head_dim) by name."""
        unrotated = self._split(self.q_proj(x))
        q = apply_rotary(unrotated, cos, sin)
        k = apply_rotary(self._split(self.k_proj(x)), cos, sin)
        v = self._split(self.v_proj(x))
        for name, heads in (("unrotated", unrotated), ("q", q), ("k", k), ("v", v)):
            observe(name, heads)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.o_proj(mixed.transpose(1, 2).flatten(2))


class MLP(nn.Module):
    """SwiGLU: down(silu(gate(x)) * up(x))."""

    def __init__(self, config: BackboneConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden, config.mlp, bias=config.mlp_bias)
        self.up_proj = nn.Linear(config.hidden, config.mlp, bias=config.mlp_bias)
        self.down_proj = nn.Linear(config.mlp, config.hidden, bias=config.mlp_bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class DecoderLayer(nn.Module):
    def __init__(self, config: BackboneConfig) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden, config.norm_eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = RMSNorm(config.hidden, config.norm_eps)
        self.mlp = MLP(config)

    def forward(
        self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, observe: Observe = lambda name, x: None
    ) -> torch.Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, observe)
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder(nn.Module):
    """Embedding, layers and final norm; parameter names are those of Hugging Face LLaMA checkpoints."""

    def __init__(self, config: BackboneConfig) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab, config.hidden)
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.layers))
        self.norm = RMSNorm(config.hidden, config.norm_eps)


class Llama(nn.Module):
    """tokens (batch, positions) int64 -> logits (batch, positions, vocab) float32.

    ``positions`` is the longest clip the rotary tables are made for; a longer input is a ValueError.
    """

    def __init__(self, config: BackboneConfig, positions: int) -> None:
        super().__init__()
        self.config = config
        self.model = Decoder(config)
        self.lm_head = nn.Linear(config.hidden, config.vocab, bias=False)
        self._positions = positions
        self.remake_tables()

    def remake_tables(self) -> None:
        """The rotary tables, which no checkpoint holds: again after a model was made without memory."""
        cos, sin = rotary_tables(self.config, self._positions)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        length = tokens.shape[1]
        if length > self.cos.shape[0]:
            raise ValueError(f"{length} positions; the model was made for {self.cos.shape[0]}")
        x = self.model.embed_tokens(tokens)
        for layer in self.model.layers:
            x = layer(x, self.cos[:length], self.sin[:length])
        return self.lm_head(self.model.norm(x))
