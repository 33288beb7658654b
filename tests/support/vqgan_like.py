"""VQGAN decoders of random weights, and their pictures as PyTorch computes them in binary64."""

from __future__ import annotations

import numpy as np
import torch
from torch.nn import functional as F

from fastcar.export.vqgan import FloatConv, FloatNorm, FloatStage, FloatVqgan

__all__ = ["float_frames", "random_codes", "random_vqgan"]


class _Weights:
    """Weights that keep a map's size about 1, smooth kernels: pictures with contours, not noise."""

    def __init__(self, seed: int) -> None:
        self.random = torch.Generator().manual_seed(seed)

    def conv(self, inputs: int, outputs: int, kernel: int = 3, gain: float = 1.0) -> FloatConv:
        bump = (
            torch.tensor([0.5, 1.0, 0.5])[:, None] * torch.tensor([0.5, 1.0, 0.5]) if kernel == 3 else torch.ones(1, 1)
        )
        shape = torch.randn(outputs, inputs, 1, 1, generator=self.random) * bump
        rough = 0.3 * torch.randn(outputs, inputs, kernel, kernel, generator=self.random)
        weight = (shape + rough) * gain / (inputs * (bump.square().sum() + 0.09 * kernel**2)) ** 0.5
        return FloatConv(weight, 0.1 * torch.randn(outputs, generator=self.random))

    def norm(self, channels: int) -> FloatNorm:
        draw = lambda: torch.randn(channels, generator=self.random)
        return FloatNorm(1 + 0.3 * draw(), 0.3 * draw())

    def residual(self, inputs: int, outputs: int) -> FloatStage:
        convs = [self.conv(inputs, outputs, gain=1.5), self.conv(outputs, outputs, gain=0.7)]
        if inputs != outputs:
            convs.append(self.conv(inputs, outputs, 1))
        return FloatStage("residual", tuple(convs), (self.norm(inputs), self.norm(outputs)))

    def attention(self, channels: int) -> FloatStage:
        convs = [self.conv(channels, channels, 1, gain) for gain in (1.5, 1.5, 1.0, 1.0)]
        return FloatStage("attention", tuple(convs), (self.norm(channels),))


def random_vqgan(
    *,
    widths: tuple[int, ...] = (64, 32),
    blocks: int = 1,
    attention_levels: tuple[int, ...] = (),
    depth: int = 4,
    codes: int = 19,
    embedding: int = 6,
    codebooks: int | None = None,
    code_shape: tuple[int, int] = (3, 2),
    latent_shape: tuple[int, int] | None = None,
    groups: int = 32,
    seed: int = 0,
) -> FloatVqgan:
    """``widths`` from the coarsest level to the finest; attention in the middle and at ``attention_levels``."""
    made, width = _Weights(seed), widths[0]
    stages = [
        FloatStage("conv", (made.conv(embedding, embedding, 1),)),
        FloatStage("conv", (made.conv(embedding, width),)),
    ]
    stages += [made.residual(width, width), made.attention(width), made.residual(width, width)]
    for level, outputs in enumerate(widths):
        for _ in range(blocks + 1):
            stages.append(made.residual(width, outputs))
            width = outputs
            if level in attention_levels:
                stages.append(made.attention(width))
        if level + 1 < len(widths):
            stages.append(FloatStage("upsample", (made.conv(width, width),)))
    stages.append(FloatStage("output", (made.conv(width, 3, gain=0.6),), (made.norm(width),)))
    books = tuple(torch.randn(codes, embedding, generator=made.random) for _ in range(codebooks or depth))
    return FloatVqgan(books, depth, code_shape, latent_shape, tuple(stages), groups)


def random_codes(model: FloatVqgan, frames: int, seed: int = 0) -> np.ndarray:
    depth = [model.depth] if model.depth > 1 else []
    return np.random.default_rng(seed).integers(0, len(model.codebooks[0]), (frames, *model.code_shape, *depth))


@torch.no_grad()
def float_frames(model: FloatVqgan, codes: np.ndarray) -> np.ndarray:
    """RGB (frames, height, width, 3) float64 before rounding, clamped to 0..255."""
    by_depth = torch.from_numpy(codes).reshape(*codes.shape[:3], model.depth)
    books = model.codebooks * (model.depth // len(model.codebooks))
    x = sum(book.double()[by_depth[..., depth]] for depth, book in enumerate(books)).permute(0, 3, 1, 2)
    if model.latent_shape:
        x = F.interpolate(x, model.latent_shape, mode="bilinear", align_corners=False)
    for stage in model.stages:
        x = _float_stage(model, stage, x)
    return ((x + 1) * 127.5).clamp(0, 255).permute(0, 2, 3, 1).numpy()


def _float_stage(model: FloatVqgan, stage: FloatStage, x: torch.Tensor) -> torch.Tensor:
    conv = lambda index, x: F.conv2d(
        x, *(part.double() for part in stage.convs[index]), padding=stage.convs[index].weight.shape[2] // 2
    )
    norm = lambda index, x: F.group_norm(x, model.groups, *(part.double() for part in stage.norms[index]), model.eps)
    if stage.op == "conv":
        return conv(0, x)
    if stage.op == "upsample":
        return conv(0, F.interpolate(x, scale_factor=2.0, mode="nearest"))
    if stage.op == "output":
        return conv(0, F.silu(norm(0, x)))
    if stage.op == "residual":
        inner = conv(0, F.silu(norm(0, x)))
        kept = conv(2, x) if len(stage.convs) == 3 else x
        return kept + conv(1, F.silu(norm(1, inner)))
    places = lambda x: x.flatten(2).transpose(1, 2)
    q, k, v = (places(conv(index, norm(0, x))) for index in range(3))
    mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x.shape)
    return x + conv(3, mixed)
