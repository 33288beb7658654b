"""The decoder of a VQGAN (arXiv 2012.09841) over residual codes (arXiv 2203.01941), exact in integers.

One frame at a time: its scales are its own, so a clip's pictures do not depend on what they are decoded with.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .bilinear import bilinear
from .byte_conv import ByteConv, conv_bytes, conv_words
from .group_norm import MAX_GROUP, GroupNorm, group_norm
from .map_attention import MAX_PLACES, map_attention
from .silu import silu_bytes

__all__ = ["OPS", "VqganDecoder", "VqganStage", "decode_vqgan"]

OPS = {"conv": (0, (1,)), "residual": (2, (2, 3)), "attention": (1, (4,)), "upsample": (0, (1,)), "output": (1, (1,))}


@dataclass(frozen=True)
class VqganStage:
    """One stage on a binary32 map (channels, height, width), the residual stream.

    ``conv``: conv(x); ``upsample``: conv of each value as 2 x 2; ``output``: conv(silu(norm(x))).
    ``residual``: shortcut(x) + second(silu(norm(first(silu(norm(x)))))), convs first, second, shortcut if there is one.
    ``attention``: x + project(attention(q, k, v)) with q, k, v, project 1 x 1 convolutions, q, k, v of norm(x).
    ValueError for an op that is none of these, or not its number of norms and convolutions, or channels that differ.
    """

    op: str
    convs: tuple[ByteConv, ...]
    norms: tuple[GroupNorm, ...] = ()

    def __post_init__(self) -> None:
        if self.op not in OPS:
            raise ValueError(f"stage {self.op!r}; expected one of {', '.join(OPS)}")
        norms, convs = OPS[self.op]
        if len(self.norms) != norms or len(self.convs) not in convs:
            found = f"{len(self.norms)} norms and {len(self.convs)} convolutions"
            raise ValueError(f"{self.op} of {found}; expected {norms} and {' or '.join(map(str, convs))}")
        for name, found, expected in self._widths():
            if found != expected:
                raise ValueError(f"{self.op}: {name} has {found} channels; expected {expected}")

    @property
    def inputs(self) -> int:
        return self.convs[0].inputs

    @property
    def outputs(self) -> int:
        return self.convs[1 if self.op == "residual" else -1].outputs

    def check_places(self, places: int) -> None:
        """ValueError for a map of more places than the integers of attention and of norms hold."""
        if self.op == "attention" and places > MAX_PLACES:
            raise ValueError(f"attention over {places} places; expected at most {MAX_PLACES}")
        for norm in self.norms:
            values = norm.gain.size // norm.groups * places
            if values > MAX_GROUP:
                raise ValueError(f"{self.op}: {values} values a group of the norm; expected at most {MAX_GROUP}")

    def _widths(self) -> list[tuple[str, int, int]]:
        """What of a stage has how many channels, and has to have."""
        first, *others = self.convs
        widths = [("the norm", norm.gain.size, first.inputs) for norm in self.norms[:1]]
        if self.op == "residual":
            second, *shortcut = others
            kept = shortcut[0].outputs if shortcut else first.inputs
            widths += [
                ("the second norm", self.norms[1].gain.size, first.outputs),
                ("the second convolution", second.inputs, first.outputs),
                *(("the shortcut", conv.inputs, first.inputs) for conv in shortcut),
                ("the sum", second.outputs, kept),
            ]
        if self.op == "attention":
            k, v, project = others
            widths += [("k", k.inputs, first.inputs), ("the keys", k.outputs, first.outputs)]
            widths += [("v", v.inputs, first.inputs), ("project", project.inputs, v.outputs)]
            widths += [("the sum", project.outputs, first.inputs)]
        return widths


@dataclass(frozen=True)
class VqganDecoder:
    """Sum of the depths' embeddings, resized to ``latent_shape`` if that is not None, then the stages.

    ``codebooks``: one (codes, embedding) int16 for all depths or one a depth; ``codebook_scale`` common to them.
    ``code_shape`` (height, width) of a frame's codes. ValueError if stages do not fit each other, do not end in RGB, or
    a map is too large for the sums of a stage.
    """

    codebooks: tuple[np.ndarray, ...]
    codebook_scale: np.float32
    depth: int
    code_shape: tuple[int, int]
    latent_shape: tuple[int, int] | None
    stages: tuple[VqganStage, ...]

    def __post_init__(self) -> None:
        if len(self.codebooks) not in (1, self.depth):
            raise ValueError(f"{len(self.codebooks)} codebooks for {self.depth} codes; expected one, or one for each")
        if not self.stages or self.stages[-1].op != "output" or self.stages[-1].outputs != 3:
            raise ValueError("the last stage is not output, to 3 channels")
        width, (height, across) = self.codebooks[0].shape[1], self.latent_shape or self.code_shape
        places = height * across
        for index, stage in enumerate(self.stages):
            if stage.inputs != width:
                raise ValueError(f"stage {index}, {stage.op}: {stage.inputs} channels; expected {width}")
            if stage.op == "output" and index < len(self.stages) - 1:
                raise ValueError(f"stage {index}, output: not the last one")
            stage.check_places(places)
            width, places = stage.outputs, places * (4 if stage.op == "upsample" else 1)

    @property
    def picture_shape(self) -> tuple[int, int]:
        factor = 2 ** sum(stage.op == "upsample" for stage in self.stages)
        height, width = self.latent_shape or self.code_shape
        return height * factor, width * factor


def decode_vqgan(decoder: VqganDecoder, codes: np.ndarray) -> np.ndarray:
    """codes (frames, height, width, depth), without the last axis if depth is 1 -> RGB (frames, ..., ..., 3) uint8.

    ValueError for codes of another shape.
    """
    shape = (*decoder.code_shape, *([decoder.depth] if decoder.depth > 1 else []))
    if codes.shape[1:] != shape:
        raise ValueError(f"codes of shape {codes.shape}; expected (frames, {', '.join(map(str, shape))})")
    return np.stack([_frame(decoder, frame.reshape(*decoder.code_shape, -1)) for frame in codes])


def _frame(decoder: VqganDecoder, codes: np.ndarray) -> np.ndarray:
    """codes (height, width, depth) -> RGB (height', width', 3)."""
    total = np.zeros((*decoder.code_shape, decoder.codebooks[0].shape[1]), np.int32)
    for depth in range(decoder.depth):
        total += decoder.codebooks[depth % len(decoder.codebooks)][codes[..., depth]]
    x = total.transpose(2, 0, 1).astype(np.float32) * decoder.codebook_scale
    if decoder.latent_shape:
        x = bilinear(x, decoder.latent_shape)
    for stage in decoder.stages:
        x = _STAGES[stage.op](stage, x)
    return np.clip(np.rint(x), 0, 255).astype(np.uint8).transpose(1, 2, 0)


def _conv(stage: VqganStage, x: np.ndarray) -> np.ndarray:
    return conv_words(x, stage.convs[0])


def _upsample(stage: VqganStage, x: np.ndarray) -> np.ndarray:
    return conv_words(x.repeat(2, axis=1).repeat(2, axis=2), stage.convs[0])


def _output(stage: VqganStage, x: np.ndarray) -> np.ndarray:
    return conv_bytes(silu_bytes(group_norm(x, stage.norms[0])), stage.convs[0])


def _residual(stage: VqganStage, x: np.ndarray) -> np.ndarray:
    first, second, *shortcut = stage.convs
    inner = conv_bytes(silu_bytes(group_norm(x, stage.norms[0])), first)
    outer = conv_bytes(silu_bytes(group_norm(inner, stage.norms[1])), second)
    return (conv_words(x, shortcut[0]) if shortcut else x) + outer


def _attention(stage: VqganStage, x: np.ndarray) -> np.ndarray:
    *projections, project = stage.convs
    normed = group_norm(x, stage.norms[0])
    mixed = map_attention(*(conv_words(normed, conv) for conv in projections))
    return x + conv_words(mixed, project)


_STAGES = {"conv": _conv, "upsample": _upsample, "output": _output, "residual": _residual, "attention": _attention}
