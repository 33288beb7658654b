"""The static quantizers of a layer, fixed to the largest values that calibration saw."""

from __future__ import annotations

import torch
from brevitas.nn import QuantIdentity

from .activation_quantizers import HeadScaling
from .head_scales import HeadScales, head_scales, value_scales
from .network import QuantAttention
from .observe import LayerPeaks

__all__ = ["fix_head_scales", "quantizer_scaling", "silent_heads"]


def quantizer_scaling(quant: QuantIdentity) -> HeadScaling:
    """The scaling implementation inside a static quantizer of heads."""
    return quant.act_quant.fused_activation_quant_proxy.tensor_quant.scaling_impl


def fix_head_scales(attention: QuantAttention, peaks: LayerPeaks, *, with_unrotated: bool) -> HeadScales:
    """Scales of q, k and v, in the layer's quantizers from now on. ``with_unrotated``: q before rotation as well."""
    q = torch.maximum(peaks.q, peaks.unrotated) if with_unrotated else peaks.q
    scales = head_scales(q.numpy(), peaks.k.numpy())
    for quant, scale in (
        (attention.q_quant, scales.q_scale),
        (attention.k_quant, scales.k_scale),
        (attention.v_quant, value_scales(peaks.v.amax(dim=1).numpy())),
    ):
        quantizer_scaling(quant).set_scale(torch.from_numpy(scale))
    return scales


def silent_heads(layer: int, peaks: LayerPeaks) -> list[str]:
    """A note for each of q, k, v with heads that were zero throughout."""
    notes = []
    for name, peak in (("q", peaks.q), ("k", peaks.k), ("v", peaks.v.amax(dim=1))):
        heads = (peak == 0).nonzero().flatten().tolist()
        if heads:
            which = ", ".join(map(str, heads))
            notes.append(f"layers.{layer}: {name} of heads {which} was zero in calibration, its scale is 1/127")
    return notes
