"""Quantization of the convolutional decoder: int8 weights from Brevitas, static 8-bit activations."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import torch
from torch import nn

from ..toolkit.errors import CheckpointError
from ..toolkit.numerics.decoder import (
    ACTIVATION_MAX,
    DecoderStage,
    IntegerConv,
    IntegerDecoder,
)
from ..toolkit.numerics.vqgan import VqganDecoder
from .car.tokenizer import Conv, Residual, Tokenizer
from .kernels import int8_kernel
from .lower.decoder import lower_decoder
from .vqgan import FloatVqgan, quantize_vqgan

__all__ = ["quantize_decoder", "write_decoder"]

CODEBOOK_MAX = 127


def quantize_decoder(
    tokenizer: Tokenizer | FloatVqgan, calibration_codes: torch.Tensor | None = None
) -> IntegerDecoder | VqganDecoder:
    """Of a convolutional tokenizer, by ``calibration_codes``; of a VQGAN, which scales each frame by itself."""
    if isinstance(tokenizer, FloatVqgan):
        return quantize_vqgan(tokenizer)
    return _quantize_convolutional(tokenizer, calibration_codes)


@torch.no_grad()
def _quantize_convolutional(tokenizer: Tokenizer, calibration_codes: torch.Tensor) -> IntegerDecoder:
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
    weight, scale = int8_kernel(conv.weight)
    return IntegerConv(weight, (scale * input_scale).astype(np.float32), conv.bias.numpy().astype(np.float32))


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
