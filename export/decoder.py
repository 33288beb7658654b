"""Quantization of the convolutional decoder: int8 weights from Brevitas, static 8-bit activations."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import torch
from brevitas import nn as qnn
from brevitas.quant import Int8WeightPerChannelFloat
from torch import nn

from ..toolkit.errors import CheckpointError
from ..toolkit.numerics.decoder import (
    ACTIVATION_MAX,
    DecoderStage,
    IntegerConv,
    IntegerDecoder,
)
from .car.tokenizer import Conv, Residual, Tokenizer
from .lower.decoder import lower_decoder

__all__ = ["quantize_decoder", "write_decoder"]

CODEBOOK_MAX = 127


@torch.no_grad()
def quantize_decoder(tokenizer: Tokenizer, calibration_codes: torch.Tensor) -> IntegerDecoder:
    """``calibration_codes`` (frames, height, width) int64 set the activation scales: running maxima, nothing is kept.

    CheckpointError if the stages do not end in a convolution to RGB or one before it has no ReLU, or if a channel's
    sum could leave the integers that binary32 holds exactly.
    """
    _check_stages(tokenizer.decoder.stages)
    codebook = tokenizer.codebook.weight
    scale = float(codebook.abs().max()) / CODEBOOK_MAX or 1.0
    integers = torch.round(codebook / scale).to(torch.int8).numpy()
    peaks = _peaks(tokenizer, calibration_codes)
    stages = []
    for index, stage in enumerate(tokenizer.decoder.stages):
        last = index == len(tokenizer.decoder.stages) - 1
        try:
            made, scale = _stage(stage, scale, peaks.get(index, ()), last)
        except ValueError as error:
            name = f"decoder.stages.{index}"
            raise CheckpointError(name, str(error), "weights that sum exactly", "Use fewer channels.") from error
        stages.append(made)
    return IntegerDecoder(integers, tuple(stages))


def write_decoder(path: Path, decoder: IntegerDecoder) -> None:
    """As an ONNX model, checked by onnx's full check."""
    ir.save(lower_decoder(decoder), path)
    onnx.checker.check_model(str(path), full_check=True)


def _check_stages(stages: nn.ModuleList) -> None:
    """Activations are unsigned from the first ReLU on: a convolution without one would be cut off at zero."""
    *inner, last = stages
    wrong = [index for index, stage in enumerate(inner) if isinstance(stage, Conv) and not stage.relu]
    if not isinstance(last, Conv) or last.relu or last.out_channels != 3:
        wrong.append(len(inner))
    if wrong:
        name = f"decoder.stages.{wrong[0]}"
        raise CheckpointError(name, "not a stage of this place", "ReLU but in the last, to RGB", "Change the decoder.")


def _stage(stage: nn.Module, scale: float, peaks: tuple[float, ...], last: bool) -> tuple[DecoderStage, float]:
    """The integer stage and the scale of its output."""
    if isinstance(stage, nn.Upsample):
        return DecoderStage("upsample"), scale
    if isinstance(stage, Residual):
        inner, outer = (peak / ACTIVATION_MAX for peak in peaks)
        convs = (_conv(stage.first, scale), _conv(stage.second, inner))
        inverse = (np.float32(1 / inner), np.float32(1 / outer))
        return DecoderStage("residual", convs, inverse, np.float32(scale)), outer
    made = 1 / ACTIVATION_MAX if last else peaks[0] / ACTIVATION_MAX
    return DecoderStage("output" if last else "conv", (_conv(stage, scale),), (np.float32(1 / made),)), made


def _conv(conv: Conv, input_scale: float) -> IntegerConv:
    quantized = qnn.QuantConv2d(
        conv.in_channels, conv.out_channels, conv.kernel_size, bias=False, weight_quant=Int8WeightPerChannelFloat
    )
    quantized.weight.data.copy_(conv.weight)
    weight = quantized.quant_weight()
    factor = weight.scale.flatten().double().numpy() * input_scale
    return IntegerConv(
        weight.int().to(torch.int8).numpy(), factor.astype(np.float32), conv.bias.numpy().astype(np.float32)
    )


def _peaks(tokenizer: Tokenizer, codes: torch.Tensor, batch: int = 32) -> dict[int, tuple[float, ...]]:
    """Largest activation after each ReLU, by stage: one of a conv; the inner one and the result of a residual."""
    peaks: dict[int, np.ndarray] = {}
    for chunk in codes.split(batch):
        x = tokenizer.codebook.weight[chunk].permute(0, 3, 1, 2)
        for index, stage in enumerate(tokenizer.decoder.stages):
            inner = [stage.first(x).max().item()] if isinstance(stage, Residual) else []
            x = stage(x)
            if not isinstance(stage, nn.Upsample):
                seen = np.array([*inner, x.max().item()])
                peaks[index] = np.maximum(peaks.get(index, np.float64(1e-6)), seen)
    return {index: tuple(map(float, peak)) for index, peak in peaks.items()}
