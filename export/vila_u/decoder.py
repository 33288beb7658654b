"""The decoder of the residual quantizer in float: embeddings of a frame to its picture; names are the checkpoint's.

A VQGAN decoder (arXiv 2012.09841) behind a residual quantizer (arXiv 2203.01941): every GroupNorm is of 32 groups, eps
1e-6, activations are SiLU. The release rounds between its layers to bfloat16; here everything is float32.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from .config import GROUPS, PictureConfig

__all__ = ["PictureDecoder"]


def _norm(channels: int) -> nn.GroupNorm:
    return nn.GroupNorm(GROUPS, channels, eps=1e-6)


class Residual(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = _norm(inputs), _norm(outputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1)
        if inputs != outputs:
            self.nin_shortcut = nn.Conv2d(inputs, outputs, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv2(F.silu(self.norm2(self.conv1(F.silu(self.norm1(x))))))
        return (self.nin_shortcut(x) if hasattr(self, "nin_shortcut") else x) + y


class MapAttention(nn.Module):
    """One head of all channels over all places of a map."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = _norm(channels)
        for name in ("q", "k", "v", "proj_out"):
            setattr(self, name, nn.Conv2d(channels, channels, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        normed = self.norm(x)
        q, k, v = (part(normed).flatten(2).transpose(1, 2) for part in (self.q, self.k, self.v))
        mixed = F.scaled_dot_product_attention(q, k, v)
        return x + self.proj_out(mixed.transpose(1, 2).reshape(x.shape))


class Upsample(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(F.interpolate(x, scale_factor=2.0, mode="nearest"))


class Middle(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.block_1, self.attn_1 = Residual(channels, channels), MapAttention(channels)
        self.block_2 = Residual(channels, channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.block_2(self.attn_1(self.block_1(x)))


class Level(nn.Module):
    """Residual blocks of one resolution, each with attention if ``attended``; then twice the resolution."""

    def __init__(self, inputs: int, outputs: int, blocks: int, attended: bool, upsampled: bool) -> None:
        super().__init__()
        self.block = nn.ModuleList(Residual(outputs if index else inputs, outputs) for index in range(blocks))
        self.attn = nn.ModuleList(MapAttention(outputs) for _ in range(blocks if attended else 0))
        if upsampled:
            self.upsample = Upsample(outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for index, block in enumerate(self.block):
            x = block(x)
            if len(self.attn):
                x = self.attn[index](x)
        return self.upsample(x) if hasattr(self, "upsample") else x


class Decoder(nn.Module):
    def __init__(self, config: PictureConfig) -> None:
        super().__init__()
        widths = [config.ch * factor for factor in config.ch_mult]
        finest = len(widths) - 1
        self.conv_in = nn.Conv2d(config.z_channels, widths[-1], 3, padding=1)
        self.mid = Middle(widths[-1])
        self.up = nn.ModuleList(
            Level(
                widths[min(index + 1, finest)],
                width,
                config.num_res_blocks + 1,
                config.resolution // 2**finest * 2 ** (finest - index) in config.attn_resolutions,
                upsampled=index > 0,
            )
            for index, width in enumerate(widths)
        )
        self.norm_out = _norm(widths[0])
        self.conv_out = nn.Conv2d(widths[0], 3, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.mid(self.conv_in(x))
        for level in reversed(self.up):
            x = level(x)
        return self.conv_out(F.silu(self.norm_out(x)))


class PictureDecoder(nn.Module):
    """Sums of embeddings (frames, h, w, embed_dim) -> pictures (frames, 3, height, width), 0..255 in float32."""

    def __init__(self, config: PictureConfig) -> None:
        super().__init__()
        self.latent_shape = config.latent_shape
        self.post_quant_conv = nn.Conv2d(config.embed_dim, config.z_channels, 1)
        self.decoder = Decoder(config)

    def forward(self, embedded: torch.Tensor) -> torch.Tensor:
        x = embedded.permute(0, 3, 1, 2)
        if self.latent_shape is not None:
            x = F.interpolate(x, size=self.latent_shape, mode="bilinear", align_corners=False)
        return ((self.decoder(self.post_quant_conv(x)) + 1) * 127.5).clamp(0, 255)
