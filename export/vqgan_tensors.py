"""The stages of a VQGAN decoder from its tensors, by the names that VQGAN and RQ-VAE checkpoints share."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import torch

from ..toolkit.errors import CheckpointError
from .vqgan import FloatConv, FloatNorm, FloatStage

__all__ = ["vqgan_stages"]

FIX = "Is this the decoder of a VQGAN, with convolutions after upsampling?"


def vqgan_stages(tensors: Mapping[str, torch.Tensor]) -> tuple[FloatStage, ...]:
    """``post_quant_conv.*`` and ``decoder.*`` of a checkpoint or a ``state_dict()`` -> stages in order of computing.

    The names tell all there is to know: levels ``decoder.up.L``, the coarsest having the largest L, their blocks, and
    attention after a block where there is one. CheckpointError for a missing tensor, or for one of the decoder that
    none of the stages is made of.
    """
    reader = _Reader(tensors)
    stages = tuple(_stages(reader))
    left = [name for name in tensors if name.startswith(("decoder.", "post_quant_conv.")) and name not in reader.used]
    if left:
        raise CheckpointError(left[0], "a tensor that no stage uses", "a decoder of known stages", FIX)
    return stages


class _Reader:
    def __init__(self, tensors: Mapping[str, torch.Tensor]) -> None:
        self.tensors, self.used = tensors, set()

    def pair(self, name: str) -> tuple[torch.Tensor, torch.Tensor]:
        names = [f"{name}.weight", f"{name}.bias"]
        for each in names:
            if each not in self.tensors:
                raise CheckpointError(each, "no such tensor", "every part of the decoder", FIX)
        self.used.update(names)
        return self.tensors[names[0]], self.tensors[names[1]]

    def conv(self, name: str) -> FloatConv:
        return FloatConv(*self.pair(name))

    def norm(self, name: str) -> FloatNorm:
        return FloatNorm(*self.pair(name))

    def numbers(self, prefix: str) -> list[int]:
        """N of all names ``prefix.N.``, ascending; CheckpointError for one left out."""
        found = (re.match(rf"{re.escape(prefix)}\.(\d+)\.", name) for name in self.tensors)
        numbers = sorted({int(match[1]) for match in found if match})
        for expected, number in enumerate(numbers):
            if number != expected:
                raise CheckpointError(f"{prefix}.{expected}", "no such tensors", "every part of the decoder", FIX)
        return numbers


def _stages(reader: _Reader) -> Iterator[FloatStage]:
    for name in ("post_quant_conv", "decoder.conv_in"):
        yield FloatStage("conv", (reader.conv(name),))
    yield _residual(reader, "decoder.mid.block_1")
    yield _attention(reader, "decoder.mid.attn_1")
    yield _residual(reader, "decoder.mid.block_2")
    for level in reversed(reader.numbers("decoder.up")):
        name = f"decoder.up.{level}"
        attended = reader.numbers(f"{name}.attn")
        for block in reader.numbers(f"{name}.block"):
            yield _residual(reader, f"{name}.block.{block}")
            if block in attended:
                yield _attention(reader, f"{name}.attn.{block}")
        if level:
            yield FloatStage("upsample", (reader.conv(f"{name}.upsample.conv"),))
    yield FloatStage("output", (reader.conv("decoder.conv_out"),), (reader.norm("decoder.norm_out"),))


def _residual(reader: _Reader, name: str) -> FloatStage:
    shortcuts = [part for part in ("nin_shortcut", "conv_shortcut") if f"{name}.{part}.weight" in reader.tensors]
    convs = tuple(reader.conv(f"{name}.{part}") for part in ("conv1", "conv2", *shortcuts))
    return FloatStage("residual", convs, tuple(reader.norm(f"{name}.{part}") for part in ("norm1", "norm2")))


def _attention(reader: _Reader, name: str) -> FloatStage:
    convs = tuple(reader.conv(f"{name}.{part}") for part in ("q", "k", "v", "proj_out"))
    return FloatStage("attention", convs, (reader.norm(f"{name}.norm"),))
