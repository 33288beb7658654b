"""The convolutional VQ tokenizer: 64 x 64 x 3 frames <-> 8 x 8 codes.

The decoder runs later in integer arithmetic, bit for bit, so it is made of nothing but an embedding lookup, 1 x 1 and
3 x 3 convolutions, ReLU, residual additions and nearest upsampling. The encoder only serves training and evaluation.
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import nn
from torch.nn import functional as F

from ...toolkit.config import Frozen

__all__ = ["Codebook", "Conv", "Decoder", "DecoderConfig", "Encoder", "EncoderConfig", "Residual", "Stage", "Tokenizer"]

Positive = Annotated[int, Field(gt=0)]


class Stage(Frozen):
    """One step of the decoder, on a map of ``inputs`` channels.

    ``conv``: kernel x kernel convolution with bias, zero padding (kernel - 1) / 2, to ``outputs`` channels,
    then ReLU if ``relu``.
    ``residual``: relu(x + second(relu(first(x)))), both kernel x kernel convolutions; inputs == outputs.
    ``upsample``: every value repeated in a 2 x 2 square; inputs == outputs, no weights.
    """

    op: Literal["conv", "residual", "upsample"]
    inputs: Positive
    outputs: Positive
    kernel: Literal[1, 3] = 3
    relu: bool = True


class DecoderConfig(Frozen):
    """``embedding``: channels of a codebook entry; ``stages`` in order; the last one gives RGB, clamped to 0..1."""

    embedding: Positive
    stages: tuple[Stage, ...]

    @classmethod
    def pyramid(cls, embedding: int, channels: tuple[int, ...], blocks: tuple[int, ...]) -> DecoderConfig:
        """``channels[i]`` and ``blocks[i]`` residual blocks at level i, each level twice the size of the one before."""
        stages, width = [], embedding
        for level, (outputs, number) in enumerate(zip(channels, blocks, strict=True)):
            if level:
                stages.append(Stage(op="upsample", inputs=width, outputs=width))
            stages.append(Stage(op="conv", inputs=width, outputs=outputs))
            stages += [Stage(op="residual", inputs=outputs, outputs=outputs)] * number
            width = outputs
        stages.append(Stage(op="conv", inputs=width, outputs=3, relu=False))
        return cls(embedding=embedding, stages=tuple(stages))


class EncoderConfig(Frozen):
    """``patch`` x ``patch`` pixels become channels, then two levels of ``channels``, the second of half the size."""

    patch: Positive
    channels: tuple[Positive, Positive]
    blocks: tuple[Positive, Positive]


class Conv(nn.Conv2d):
    """A convolution that keeps the size (or halves it with ``stride`` 2), with an optional ReLU."""

    def __init__(self, inputs: int, outputs: int, kernel: int = 3, relu: bool = True, stride: int = 1) -> None:
        super().__init__(inputs, outputs, kernel, stride=stride, padding=kernel // 2)
        self.relu = relu

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = super().forward(x)
        return F.relu(y, inplace=True) if self.relu else y


class Residual(nn.Module):
    """relu(x + second(relu(first(x))))."""

    def __init__(self, channels: int, kernel: int = 3) -> None:
        super().__init__()
        self.first = Conv(channels, channels, kernel)
        self.second = Conv(channels, channels, kernel, relu=False)
        nn.init.zeros_(self.second.weight)  # starts as the identity: no norm is needed to train a deep stack

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(x + self.second(self.first(x)), inplace=True)


def _build(stage: Stage) -> nn.Module:
    if stage.op == "conv":
        return Conv(stage.inputs, stage.outputs, stage.kernel, stage.relu)
    if stage.op == "residual":
        return Residual(stage.inputs, stage.kernel)
    return nn.Upsample(scale_factor=2, mode="nearest")


class Decoder(nn.Module):
    """Embedded codes (frames, embedding, height, width) -> RGB (frames, 3, 8 height, 8 width), not clamped."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.stages = nn.ModuleList(_build(stage) for stage in config.stages)
        nn.init.constant_(self.stages[-1].bias, 0.4)  # about the mean colour: training starts from there

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for stage in self.stages:
            x = stage(x)
        return x


class Encoder(nn.Sequential):
    """RGB in 0..1 (frames, 3, height, width) -> unit vectors (frames, embedding, height / 8, width / 8)."""

    def __init__(self, config: EncoderConfig, embedding: int) -> None:
        first, second = config.channels
        super().__init__(
            nn.PixelUnshuffle(config.patch),
            Conv(3 * config.patch**2, first),
            *(Residual(first) for _ in range(config.blocks[0])),
            Conv(first, second, stride=2),
            *(Residual(second) for _ in range(config.blocks[1])),
            Conv(second, embedding, kernel=1, relu=False),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.normalize(super().forward(x - 0.5), dim=1)


class Codebook(nn.Module):
    """Unit vectors (codes, embedding), moved towards the mean of the vectors they stand for; dead ones are replaced."""

    def __init__(self, codes: int, embedding: int, decay: float = 0.985) -> None:
        super().__init__()
        self.decay = decay
        self.register_buffer("weight", F.normalize(torch.randn(codes, embedding), dim=1))
        self.register_buffer("count", torch.zeros(codes), persistent=False)
        self.register_buffer("total", torch.zeros(codes, embedding), persistent=False)

    def nearest(self, vectors: torch.Tensor) -> torch.Tensor:
        """vectors (n, embedding), unit length -> codes (n,) int64: the largest inner product."""
        return (vectors @ self.weight.T).argmax(1)

    @torch.no_grad()
    def follow(self, vectors: torch.Tensor, codes: torch.Tensor) -> None:
        """One step of the exponential moving average; a code that stands for almost nothing restarts from a vector."""
        chosen = F.one_hot(codes, len(self.weight)).to(vectors.dtype)
        self.count.lerp_(chosen.sum(0), 1 - self.decay)
        self.total.lerp_(chosen.T @ vectors, 1 - self.decay)
        dead = self.count < 0.02 * self.count.mean()
        if dead.any():
            restart = vectors[torch.randint(len(vectors), (int(dead.sum()),))]
            self.total[dead], self.count[dead] = restart * self.count.mean(), self.count.mean()
        self.weight.copy_(F.normalize(self.total, dim=1))


class Tokenizer(nn.Module):
    """Encoder, codebook and decoder."""

    def __init__(self, encoder: EncoderConfig, decoder: DecoderConfig, codes: int) -> None:
        super().__init__()
        self.encoder = Encoder(encoder, decoder.embedding)
        self.codebook = Codebook(codes, decoder.embedding)
        self.decoder = Decoder(decoder)

    def encode(self, frames: torch.Tensor) -> torch.Tensor:
        """frames (n, height, width, 3) uint8 -> codes (n, height / 8, width / 8) int64."""
        z = self.encoder(frames.permute(0, 3, 1, 2).float() / 255)
        return self.codebook.nearest(z.permute(0, 2, 3, 1).flatten(0, 2)).view(len(z), *z.shape[2:])

    def decode(self, codes: torch.Tensor) -> torch.Tensor:
        """codes (n, height, width) int64 -> frames (n, 8 height, 8 width, 3) uint8."""
        rgb = self.decoder(self.codebook.weight[codes].permute(0, 3, 1, 2)).clamp(0, 1)
        return (rgb * 255).round().to(torch.uint8).permute(0, 2, 3, 1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """x (n, 3, height, width) in 0..1 -> reconstruction, codes (n * cells,), commitment; trains the codebook."""
        z = self.encoder(x)
        vectors = z.permute(0, 2, 3, 1).flatten(0, 2)
        codes = self.codebook.nearest(vectors.detach())
        chosen = self.codebook.weight[codes].view(len(z), *z.shape[2:], -1).permute(0, 3, 1, 2)
        commitment = F.mse_loss(z, chosen) * z.shape[1]
        if self.training:
            self.codebook.follow(vectors.detach(), codes)
        straight_through = z + (chosen - z).detach()
        return self.decoder(straight_through), codes, commitment
