"""The decoder with Brevitas layers: what calibration runs, what the integers are taken from.

It computes what the integer arithmetic computes, up to the int16 input of the norms and the function tables, which
are exact to well below one step of the int8 values that follow them.
"""

from __future__ import annotations

import torch
from brevitas.nn import QuantIdentity, QuantLinear
from torch import nn
from torch.nn import functional as F

from ...toolkit.config import BackboneConfig, FrameLayout
from ..llama import Llama, RMSNorm, apply_rotary
from .activation_quantizers import Int8DynamicActPerRow, Int8StaticActPerHead
from .recipes import Recipe
from .weight_quantizers import Int8WeightPerOutputChannel, weight_quantizer

__all__ = ["QuantAttention", "QuantDecoderLayer", "QuantLlama", "QuantMLP"]


def _row_quantizer() -> QuantIdentity:
    return QuantIdentity(act_quant=Int8DynamicActPerRow)


class QuantAttention(nn.Module):
    """Attention with int8 queries, keys and values; one quantized input serves their three projections.

    With ``observe_unrotated`` the query quantizer is calibrated on queries before rotary embedding as well.
    """

    def __init__(self, config: BackboneConfig, weight_quant: type, observe_unrotated: bool) -> None:
        super().__init__()
        self.head_dim = config.head_dim
        self.observe_unrotated = observe_unrotated
        inner, kv = config.heads * config.head_dim, config.kv_heads * config.head_dim
        self.input_quant = _row_quantizer()
        self.q_proj = QuantLinear(config.hidden, inner, bias=False, weight_quant=weight_quant)
        self.k_proj = QuantLinear(config.hidden, kv, bias=False, weight_quant=weight_quant)
        self.v_proj = QuantLinear(config.hidden, kv, bias=False, weight_quant=weight_quant)
        self.q_quant = QuantIdentity(act_quant=Int8StaticActPerHead, heads=config.heads)
        self.k_quant = QuantIdentity(act_quant=Int8StaticActPerHead, heads=config.kv_heads)
        self.v_quant = QuantIdentity(act_quant=Int8StaticActPerHead, heads=config.kv_heads)
        self.mixed_quant = _row_quantizer()
        self.o_proj = QuantLinear(inner, config.hidden, bias=False, weight_quant=weight_quant)

    def _split(self, x: torch.Tensor) -> torch.Tensor:
        return x.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        x = self.input_quant(x)
        unrotated = self._split(self.q_proj(x))
        if self.observe_unrotated and self.q_quant.act_quant.training:
            self.q_quant(unrotated)
        q = self.q_quant(apply_rotary(unrotated, cos, sin))
        k = self.k_quant(apply_rotary(self._split(self.k_proj(x)), cos, sin))
        v = self.v_quant(self._split(self.v_proj(x)))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.o_proj(self.mixed_quant(mixed.transpose(1, 2).flatten(2)))


class QuantMLP(nn.Module):
    """SwiGLU whose output is rounded to bfloat16, the format in which it is replayed."""

    def __init__(self, config: BackboneConfig, weight_quant: type) -> None:
        super().__init__()
        self.input_quant = _row_quantizer()
        self.gate_proj = QuantLinear(config.hidden, config.mlp, bias=False, weight_quant=weight_quant)
        self.up_proj = QuantLinear(config.hidden, config.mlp, bias=False, weight_quant=weight_quant)
        self.activated_quant = _row_quantizer()
        self.down_proj = QuantLinear(config.mlp, config.hidden, bias=False, weight_quant=weight_quant)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.input_quant(x)
        activated = self.activated_quant(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return self.down_proj(activated).bfloat16().float()


class QuantDecoderLayer(nn.Module):
    def __init__(self, config: BackboneConfig, weight_quant: type, observe_unrotated: bool) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden, config.norm_eps)
        self.self_attn = QuantAttention(config, weight_quant, observe_unrotated)
        self.post_attention_layernorm = RMSNorm(config.hidden, config.norm_eps)
        self.mlp = QuantMLP(config, weight_quant)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class QuantLlama(nn.Module):
    """tokens (batch, positions) int64 -> logits (batch, positions, codes) float32; the head knows the codes only.

    Built from a float ``Llama``, whose weights are copied; the embedding is rounded to float16.
    """

    def __init__(self, llama: Llama, layout: FrameLayout, recipe: Recipe, *, observe_unrotated: bool = False) -> None:
        super().__init__()
        config, quant = llama.config, weight_quantizer(recipe)
        self.config, self.layout, self.recipe = config, layout, recipe
        self.embed_tokens = nn.Embedding(config.vocab, config.hidden)
        self.layers = nn.ModuleList(QuantDecoderLayer(config, quant, observe_unrotated) for _ in range(config.layers))
        self.norm = RMSNorm(config.hidden, config.norm_eps)
        self.head_quant = _row_quantizer()
        self.head = QuantLinear(config.hidden, layout.codes, bias=False, weight_quant=Int8WeightPerOutputChannel)
        self.register_buffer("cos", llama.cos.clone(), persistent=False)
        self.register_buffer("sin", llama.sin.clone(), persistent=False)
        self._copy_weights(llama)
        self.eval().requires_grad_(False)

    @torch.no_grad()
    def _copy_weights(self, llama: Llama) -> None:
        """Parameters of the same name are the same; the quantizers' own state is not in a float model."""
        own = dict(self.named_parameters())
        for name, value in llama.model.named_parameters():
            own[name].copy_(value)
        self.embed_tokens.weight.copy_(llama.model.embed_tokens.weight.half())
        first = self.layout.code_offset
        self.head.weight.copy_(llama.lm_head.weight[first : first + self.layout.codes])

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        length = tokens.shape[1]
        if length > self.cos.shape[0]:
            raise ValueError(f"{length} positions; the model was made for {self.cos.shape[0]}")
        x = self.embed_tokens(tokens)
        for layer in self.layers:
            x = layer(x, self.cos[:length], self.sin[:length])
        return self.head(self.head_quant(self.norm(x)))
