"""Calibration of the static quantizers: one pass over clips, one running maximum a head."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from brevitas.nn import QuantIdentity

from .activation_quantizers import HeadScaling
from .brevitas_graph import calibration_mode
from .head_scales import HeadScales, head_scales, value_scales
from .network import QuantAttention, QuantLlama

__all__ = ["calibrate_heads", "quantizer_scaling"]


def quantizer_scaling(quant: QuantIdentity) -> HeadScaling:
    """The scaling implementation inside a static quantizer of heads."""
    return quant.act_quant.fused_activation_quant_proxy.tensor_quant.scaling_impl


@torch.no_grad()
def calibrate_heads(network: QuantLlama, batches: Iterable[torch.Tensor]) -> list[HeadScales]:
    """Observe q, k, v in float over batches of tokens (clips, positions), then fix their scales in the network."""
    with calibration_mode(network):
        for tokens in batches:
            network(tokens)
    return [_fix_scales(layer.self_attn) for layer in network.layers]


def _fix_scales(attention: QuantAttention) -> HeadScales:
    q, k, v = (quantizer_scaling(quant) for quant in (attention.q_quant, attention.k_quant, attention.v_quant))
    scales = head_scales(q.peak.flatten().numpy(), k.peak.flatten().numpy())
    q.set_scale(torch.from_numpy(scales.q_scale))
    k.set_scale(torch.from_numpy(scales.k_scale))
    v.set_scale(torch.from_numpy(value_scales(v.peak.flatten().numpy())))
    return scales
