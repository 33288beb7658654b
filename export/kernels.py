"""Int8 convolution kernels, a scale an output channel."""

from __future__ import annotations

import numpy as np
import torch
from brevitas import nn as qnn
from brevitas.quant import Int8WeightPerChannelFloat

__all__ = ["int8_kernel"]


@torch.no_grad()
def int8_kernel(weight: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
    """weight (out, in, k, k) -> int8 of the same shape and scales (out,) float64; weight is about int8 * scale."""
    outputs, inputs, *kernel = weight.shape
    layer = qnn.QuantConv2d(inputs, outputs, tuple(kernel), bias=False, weight_quant=Int8WeightPerChannelFloat)
    layer.weight.data.copy_(weight)
    quantized = layer.quant_weight()
    return quantized.int().to(torch.int8).numpy(), quantized.scale.flatten().double().numpy()
