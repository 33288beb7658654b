"""From the fake-quantized network to the integers and scales that are deployed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from brevitas.nn import QuantLinear

from ...toolkit.numerics.weights import LayerWeights, LinearWeights
from .calibrate import quantizer_scaling
from .head_scales import HeadScales
from .network import QuantDecoderLayer
from .two_level import TwoLevelScaling

__all__ = ["layer_weights", "linear_weights"]


@torch.no_grad()
def linear_weights(*layers: QuantLinear) -> LinearWeights:
    """The integers Brevitas computes for the layers' weights (out, in), joined along outputs, as (in, out)."""
    parts = [_one_linear(layer) for layer in layers]
    first = parts[0]
    return replace(
        first,
        values=np.concatenate([part.values for part in parts], axis=1),
        scale=np.concatenate([part.scale for part in parts]),
        multiplier=None if first.multiplier is None else np.concatenate([part.multiplier for part in parts], axis=1),
        bias=None if first.bias is None else np.concatenate([part.bias for part in parts]),
    )


def _one_linear(layer: QuantLinear) -> LinearWeights:
    quantized = layer.quant_weight()
    values = np.ascontiguousarray(quantized.int().numpy().astype(np.int8).T)
    bias = None if layer.bias is None else layer.bias.numpy().copy()
    scaling = layer.weight_quant.tensor_quant.scaling_impl
    if not isinstance(scaling, TwoLevelScaling):
        return LinearWeights(values, quantized.scale.flatten().numpy(), bias=bias)
    multiplier = scaling.multiplier.squeeze(-1).numpy().T.astype(np.uint8)
    return LinearWeights(values, scaling.channel_scale.flatten().numpy(), np.ascontiguousarray(multiplier), bias)


@torch.no_grad()
def layer_weights(layer: QuantDecoderLayer, scales: HeadScales) -> LayerWeights:
    """The integers of a layer; ``scales`` as given to its quantizers."""
    attention, mlp = layer.self_attn, layer.mlp
    return LayerWeights(
        attention_gain=layer.input_layernorm.weight.numpy().copy(),
        qkv=linear_weights(attention.q_proj, attention.k_proj, attention.v_proj),
        q_scale=scales.q_scale,
        k_scale=scales.k_scale,
        v_scale=quantizer_scaling(attention.v_quant).scale.flatten().numpy().copy(),
        tas_multiplier=scales.tas_multiplier,
        tas_scale=scales.tas_scale,
        output=linear_weights(attention.o_proj),
        mlp_gain=layer.post_attention_layernorm.weight.numpy().copy(),
        gate_up=linear_weights(mlp.gate_proj, mlp.up_proj),
        down=linear_weights(mlp.down_proj),
    )
