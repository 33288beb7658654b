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
from ..llama import DecoderLayer, RMSNorm, apply_rotary, rotary_tables
from .activation_quantizers import Int8DynamicActPerRow, Int8StaticActPerHead
from .recipes import Recipe
from .weight_quantizers import Int8WeightPerOutputChannel, weight_quantizer

__all__ = ["QuantAttention", "QuantDecoderLayer", "QuantHead", "QuantLlama", "QuantMLP", "UnfilledLinear"]


class UnfilledLinear(QuantLinear):
    """Without first weights of its own: it takes over those of a float layer. A bias stays in binary32."""

    def __init__(self, inputs: int, outputs: int, weight_quant: type, bias: bool = False) -> None:
        super().__init__(inputs, outputs, bias=bias, weight_quant=weight_quant)

    def reset_parameters(self) -> None:
        """Random numbers for a layer of a large model take as long as its quantization."""


def _row_quantizer() -> QuantIdentity:
    return QuantIdentity(act_quant=Int8DynamicActPerRow)


class QuantAttention(nn.Module):
    """Attention with int8 queries, keys and values; one quantized input serves their three projections."""

    def __init__(self, config: BackboneConfig, weight_quant: type) -> None:
        super().__init__()
        self.head_dim = config.head_dim
        inner, kv = config.heads * config.head_dim, config.kv_heads * config.head_dim
        self.input_quant = _row_quantizer()
        self.q_proj = UnfilledLinear(config.hidden, inner, weight_quant, config.attention_bias)
        self.k_proj = UnfilledLinear(config.hidden, kv, weight_quant, config.attention_bias)
        self.v_proj = UnfilledLinear(config.hidden, kv, weight_quant, config.attention_bias)
        self.q_quant = QuantIdentity(act_quant=Int8StaticActPerHead, heads=config.heads)
        self.k_quant = QuantIdentity(act_quant=Int8StaticActPerHead, heads=config.kv_heads)
        self.v_quant = QuantIdentity(act_quant=Int8StaticActPerHead, heads=config.kv_heads)
        self.mixed_quant = _row_quantizer()
        self.o_proj = UnfilledLinear(inner, config.hidden, weight_quant, config.attention_bias)

    def _split(self, x: torch.Tensor) -> torch.Tensor:
        return x.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        x = self.input_quant(x)
        q = self.q_quant(apply_rotary(self._split(self.q_proj(x)), cos, sin))
        k = self.k_quant(apply_rotary(self._split(self.k_proj(x)), cos, sin))
        v = self.v_quant(self._split(self.v_proj(x)))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.o_proj(self.mixed_quant(mixed.transpose(1, 2).flatten(2)))


class QuantMLP(nn.Module):
    """SwiGLU whose output is rounded to bfloat16, the format in which it is replayed."""

    def __init__(self, config: BackboneConfig, weight_quant: type) -> None:
        super().__init__()
        self.input_quant = _row_quantizer()
        self.gate_proj = UnfilledLinear(config.hidden, config.mlp, weight_quant, config.mlp_bias)
        self.up_proj = UnfilledLinear(config.hidden, config.mlp, weight_quant, config.mlp_bias)
        self.activated_quant = _row_quantizer()
        self.down_proj = UnfilledLinear(config.mlp, config.hidden, weight_quant, config.mlp_bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.input_quant(x)
        activated = self.activated_quant(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return self.down_proj(activated).bfloat16().float()


class QuantDecoderLayer(nn.Module):
    """A float layer with quantizers in it, whose weights it takes over: parameters of the same name are the same."""

    def __init__(self, layer: DecoderLayer, recipe: Recipe) -> None:
        super().__init__()
        config, quant = layer.self_attn.config, weight_quantizer(recipe)
        self.input_layernorm, self.post_attention_layernorm = layer.input_layernorm, layer.post_attention_layernorm
        self.self_attn = QuantAttention(config, quant)
        self.mlp = QuantMLP(config, quant)
        own = dict(self.named_parameters())
        for name, value in layer.named_parameters():
            own[name].data = value.data
        self.eval().requires_grad_(False)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class QuantHead(nn.Module):
    """The final norm and the head, which knows the codes only: x (clips, positions, hidden) -> logits."""

    def __init__(self, config: BackboneConfig, gain: torch.Tensor, weight: torch.Tensor) -> None:
        """gain (hidden,), weight (codes, hidden)."""
        super().__init__()
        self.norm = RMSNorm(config.hidden, config.norm_eps)
        self.input_quant = _row_quantizer()
        self.linear = UnfilledLinear(config.hidden, len(weight), Int8WeightPerOutputChannel)
        self.norm.weight.data, self.linear.weight.data = gain, weight
        self.eval().requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(self.input_quant(self.norm(x)))


class QuantLlama(nn.Module):
    """tokens (batch, positions) int64 -> logits (batch, positions, codes) float32; the embedding is in float16."""

    def __init__(
        self,
        config: BackboneConfig,
        layout: FrameLayout,
        embedding: torch.Tensor,
        layers: list[QuantDecoderLayer],
        final: QuantHead,
    ) -> None:
        super().__init__()
        self.config, self.layout = config, layout
        self.embedding = embedding.half()
        self.layers = nn.ModuleList(layers)
        self.final = final
        self.cos, self.sin = rotary_tables(config, layout.positions)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        length = tokens.shape[1]
        if length > self.cos.shape[0]:
            raise ValueError(f"{length} positions; the model was made for {self.cos.shape[0]}")
        x = self.embedding[tokens].float()
        for layer in self.layers:
            x = layer(x, self.cos[:length], self.sin[:length])
        return self.final(x)
