"""The convolutional decoder (codes -> RGB) in integers, so that the same codes are the same video everywhere."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .vqgan import VqganDecoder, decode_vqgan

__all__ = ["ACTIVATION_MAX", "DecoderStage", "IntegerConv", "IntegerDecoder", "decode_frames"]

ACTIVATION_MAX = 255  # after ReLU an activation is an unsigned 8-bit integer


@dataclass(frozen=True)
class IntegerConv:
    """``weight`` (out, in, k, k) int8, zero padding; y = accumulator * ``factor`` + ``bias``, both (out,) float32.

    A library may sum in binary32 and in any order: every partial sum is an integer below 2^24, hence exact.
    ValueError for a channel that could exceed this: sum|weight| * 255 >= 2^24.
    """

    weight: np.ndarray
    factor: np.ndarray
    bias: np.ndarray

    def __post_init__(self) -> None:
        reach = np.abs(self.weight.astype(np.int64)).sum(axis=(1, 2, 3)) * ACTIVATION_MAX
        if reach.max(initial=0) >= 1 << 24:
            raise ValueError(
                f"channel {reach.argmax()} can reach {reach.max()}; expected below 2^24, or sums are not exact"
            )


@dataclass(frozen=True)
class DecoderStage:
    """One stage on integer maps (frames, channels, height, width).

    ``conv``: relu(conv(x)); ``residual``: relu(x * skip + second(relu(first(x)))); ``upsample``: each value as 2 x 2;
    ``output``: conv, then 0..1 to 0..255. ``inverse_scales``: one a convolution, to bring its result back to 0..255.
    """

    op: str
    convs: tuple[IntegerConv, ...] = ()
    inverse_scales: tuple[np.float32, ...] = ()
    skip: np.float32 = np.float32(0)


@dataclass(frozen=True)
class IntegerDecoder:
    """``codebook`` (codes, embedding) int8, then the stages; the last one is ``output``."""

    codebook: np.ndarray
    stages: tuple[DecoderStage, ...]


def decode_frames(decoder: IntegerDecoder | VqganDecoder, codes: np.ndarray) -> np.ndarray:
    """codes (frames, height, width), with a last axis for residual codes -> RGB (frames, height', width', 3) uint8."""
    if isinstance(decoder, VqganDecoder):
        return decode_vqgan(decoder, codes)
    x = decoder.codebook[codes].transpose(0, 3, 1, 2).astype(np.int64)
    for stage in decoder.stages:
        x = _stage(stage, x)
    return x.transpose(0, 2, 3, 1).astype(np.uint8)


def _stage(stage: DecoderStage, x: np.ndarray) -> np.ndarray:
    if stage.op == "upsample":
        return x.repeat(2, axis=2).repeat(2, axis=3)
    y = _conv(stage.convs[0], x)
    if stage.op == "residual":
        inner = _quantize(y, stage.inverse_scales[0])
        y = _conv(stage.convs[1], inner) + x.astype(np.float32) * stage.skip
    return _quantize(y, stage.inverse_scales[-1])


def _quantize(y: np.ndarray, inverse_scale: np.float32) -> np.ndarray:
    """ReLU and rounding in one: clip(round(y * inverse_scale), 0, 255)."""
    return np.clip(np.rint(y * inverse_scale), 0, ACTIVATION_MAX).astype(np.int64)


def _conv(conv: IntegerConv, x: np.ndarray) -> np.ndarray:
    """Shifted products summed in binary64, where they are exact integers."""
    outputs, _, kernel, _ = conv.weight.shape
    pad = kernel // 2
    frames, _, height, width = x.shape
    padded = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad))).astype(np.float64)
    total = np.zeros((frames, outputs, height, width))
    for row in range(kernel):
        for column in range(kernel):
            window = padded[:, :, row : row + height, column : column + width]
            tap = conv.weight[:, :, row, column].astype(np.float64)
            total += np.einsum("oi,fihw->fohw", tap, window, optimize=True)
    return total.astype(np.float32) * conv.factor[:, None, None] + conv.bias[:, None, None]
