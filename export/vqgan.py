"""The decoder of a VQGAN in float, as an importer describes it, and its quantization: int8 weights from Brevitas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from ..toolkit.errors import CheckpointError
from ..toolkit.numerics.byte_conv import ByteConv
from ..toolkit.numerics.group_norm import GroupNorm
from ..toolkit.numerics.vqgan import VqganDecoder, VqganStage
from .kernels import int8_kernel

__all__ = ["FloatConv", "FloatNorm", "FloatStage", "FloatVqgan", "quantize_vqgan"]

CODEBOOK_MAX = 32767
HALF_RANGE = 127.5  # (x + 1) * 127.5 are the pixels, folded into the last convolution


class FloatConv(NamedTuple):
    """``weight`` (out, in, k, k), ``bias`` (out,)."""

    weight: torch.Tensor
    bias: torch.Tensor


class FloatNorm(NamedTuple):
    """``weight`` and ``bias`` (channels,) of a GroupNorm."""

    weight: torch.Tensor
    bias: torch.Tensor


@dataclass(frozen=True)
class FloatStage:
    """``op`` with its convolutions and norms, in the order that ``VqganStage`` tells."""

    op: str
    convs: tuple[FloatConv, ...]
    norms: tuple[FloatNorm, ...] = ()


@dataclass(frozen=True)
class FloatVqgan:
    """Codes (frames, *code_shape, depth) -> sum of embeddings -> resized to ``latent_shape``, if any -> ``stages``.

    ``codebooks``: (codes, embedding) without a row for padding, one for all depths or one a depth. The stages start
    with the convolution after quantization and end with ``output``, whose -1..1 are the pixels' 0..255.
    """

    codebooks: tuple[torch.Tensor, ...]
    depth: int
    code_shape: tuple[int, int]
    latent_shape: tuple[int, int] | None
    stages: tuple[FloatStage, ...]
    groups: int = 32
    eps: float = 1e-6


@torch.no_grad()
def quantize_vqgan(model: FloatVqgan) -> VqganDecoder:
    """CheckpointError, by its place, for a stage that the integers do not cover or weights that are not finite."""
    scale = max(float(codebook.abs().max()) for codebook in model.codebooks) / CODEBOOK_MAX or 1.0
    if not np.isfinite(scale):
        raise CheckpointError("codebooks", "values that are not finite", "numbers", "Repair the checkpoint.")
    codebooks = tuple(
        torch.round(codebook.double() / scale).to(torch.int16).numpy(force=True) for codebook in model.codebooks
    )
    stages = []
    for index, stage in enumerate(model.stages):
        try:
            stages.append(_stage(stage, model))
        except ValueError as error:
            raise _refused(f"decoder.stages.{index}", error) from error
    try:
        shapes = (model.depth, model.code_shape, model.latent_shape)
        return VqganDecoder(codebooks, np.float32(scale), *shapes, tuple(stages))
    except ValueError as error:
        raise _refused("decoder", error) from error


def _refused(subject: str, error: ValueError) -> CheckpointError:
    return CheckpointError(subject, str(error), "the decoder of a VQGAN", "Check the configuration of the decoder.")


def _stage(stage: FloatStage, model: FloatVqgan) -> VqganStage:
    tensors = [tensor for part in (*stage.convs, *stage.norms) for tensor in part]
    if not all(torch.isfinite(tensor).all() for tensor in tensors):
        raise ValueError("weights that are not finite")
    to_pixels = stage.op == "output"
    convs = tuple(_conv(conv, to_pixels) for conv in stage.convs)
    norms = tuple(
        GroupNorm(_float32(norm.weight), _float32(norm.bias), model.groups, model.eps) for norm in stage.norms
    )
    return VqganStage(stage.op, convs, norms)


def _conv(conv: FloatConv, to_pixels: bool) -> ByteConv:
    weight, scale = int8_kernel(conv.weight.float())
    bias = conv.bias.double().numpy(force=True)
    if to_pixels:
        scale, bias = scale * HALF_RANGE, (bias + 1) * HALF_RANGE
    return ByteConv(weight, scale.astype(np.float32), bias.astype(np.float32))


def _float32(x: torch.Tensor) -> np.ndarray:
    return x.float().numpy(force=True)
