"""Activation equalization: range moves from an activation channel into the weights that read it, at no cost later.

    (x / s) (s W) = x W,   s[j] = max|x[j]|^alpha / max|W[:, j]|^(1 - alpha)      (arXiv 2211.10438, eq. 4)

1 / s is folded into what produces x: a norm gain, the up projection, the value projection; their biases too. A bias of
what reads x stays.
"""

from __future__ import annotations

import torch
from torch import nn

from ..llama import DecoderLayer
from .observe import LayerPeaks
from .recipes import Equalization

__all__ = ["equalization_scale", "equalize"]

PEAK_FLOOR = 1e-5  # a channel of activations or weights below it is not worth moving


def equalization_scale(peak: torch.Tensor, weights: list[torch.Tensor], alpha: float) -> torch.Tensor:
    """s (channels,) with geometric mean 1. peak (channels,); each weight (out, channels)."""
    weight_peak = torch.stack([w.abs().amax(dim=0) for w in weights]).amax(dim=0)
    moved = (peak > PEAK_FLOOR) & (weight_peak > PEAK_FLOOR)
    log = alpha * peak.clamp_min(PEAK_FLOOR).log() - (1 - alpha) * weight_peak.clamp_min(PEAK_FLOOR).log()
    if not moved.any():
        return torch.ones_like(peak)
    return torch.where(moved, log - log[moved].mean(), torch.zeros_like(log)).exp()


@torch.no_grad()
def equalize(layer: DecoderLayer, peaks: LayerPeaks, options: Equalization) -> None:
    """Fold equalization into the weights of ``layer`` in place; its function stays the same up to rounding.

    The peaks of the values follow, so that they are those of the layer as it is now.
    """
    attention, mlp = layer.self_attn, layer.mlp
    if options.norm:
        projections = [attention.q_proj, attention.k_proj, attention.v_proj]
        _equalize_norm(layer.input_layernorm, projections, peaks.inputs["self_attn.q_proj"], options.norm)
        projections = [mlp.gate_proj, mlp.up_proj]
        _equalize_norm(layer.post_attention_layernorm, projections, peaks.inputs["mlp.gate_proj"], options.norm)
    if options.down:
        scale = equalization_scale(peaks.inputs["mlp.down_proj"], [mlp.down_proj.weight], options.down)
        _divide_outputs(mlp.up_proj, scale)
        mlp.down_proj.weight.mul_(scale)
    if options.value:
        scale = _equalize_value(attention, peaks.inputs["self_attn.o_proj"], options.value)
        peaks.v.div_(scale.view_as(peaks.v))


def _divide_outputs(linear: nn.Linear, scale: torch.Tensor) -> None:
    linear.weight.div_(scale[:, None])
    if linear.bias is not None:
        linear.bias.div_(scale)


def _equalize_norm(norm: nn.Module, readers: list[nn.Linear], peak: torch.Tensor, alpha: float) -> None:
    scale = equalization_scale(peak, [reader.weight for reader in readers], alpha)
    norm.weight.div_(scale)
    for reader in readers:
        reader.weight.mul_(scale)


def _equalize_value(attention: nn.Module, peak: torch.Tensor, alpha: float) -> torch.Tensor:
    """Query heads that share a value head share its scale: s is found per (kv_head, dim) and repeated."""
    config = attention.config
    shape = (config.kv_heads, config.group, config.head_dim)
    shared_peak = peak.view(shape).amax(dim=1).flatten()
    columns = attention.o_proj.weight.view(-1, *shape).movedim(2, 1).reshape(-1, shared_peak.numel())
    scale = equalization_scale(shared_peak, [columns], alpha)
    _divide_outputs(attention.v_proj, scale)
    repeated = scale.view(config.kv_heads, 1, config.head_dim).expand(shape)
    attention.o_proj.weight.mul_(repeated.flatten())
    return scale
