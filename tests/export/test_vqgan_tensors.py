"""The stages found in the tensors of a decoder written as a PyTorch module compute what the module computes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from vqgan_like import float_frames

from fastcar.export.decoder import quantize_decoder
from fastcar.export.vqgan import FloatVqgan
from fastcar.export.vqgan_tensors import vqgan_stages
from fastcar.toolkit.errors import CheckpointError
from fastcar.toolkit.numerics.decoder import decode_frames

EMBEDDING, CODES, SHAPE = 5, 11, (2, 3)


def norm(channels: int) -> nn.GroupNorm:
    return nn.GroupNorm(32, channels, eps=1e-6)


class Block(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = norm(inputs), norm(outputs)
        self.conv1, self.conv2 = nn.Conv2d(inputs, outputs, 3, 1, 1), nn.Conv2d(outputs, outputs, 3, 1, 1)
        if inputs != outputs:
            self.nin_shortcut = nn.Conv2d(inputs, outputs, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = self.conv1(F.silu(self.norm1(x)))
        return getattr(self, "nin_shortcut", nn.Identity())(x) + self.conv2(F.silu(self.norm2(inner)))


class Attention(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = norm(channels)
        self.q, self.k, self.v, self.proj_out = (nn.Conv2d(channels, channels, 1) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (layer(self.norm(x)).flatten(2) for layer in (self.q, self.k, self.v))
        weight = (q.transpose(1, 2) @ k / q.shape[1] ** 0.5).softmax(dim=2)
        return x + self.proj_out((v @ weight.transpose(1, 2)).view_as(x))


class Decoder(nn.Module):
    """``widths[0]`` is the finest level, as in the names; attention at level 1."""

    def __init__(self, widths: tuple[int, ...] = (32, 64, 64), blocks: int = 1) -> None:
        super().__init__()
        width = widths[-1]
        self.conv_in = nn.Conv2d(EMBEDDING, width, 3, 1, 1)
        self.mid = nn.ModuleDict({"block_1": Block(width, width), "attn_1": Attention(width)})
        self.mid["block_2"] = Block(width, width)
        self.up = nn.ModuleList(nn.Module() for _ in widths)
        for level in reversed(range(len(widths))):
            up = self.up[level]
            up.block, up.attn = nn.ModuleList(), nn.ModuleList()
            for _ in range(blocks + 1):
                up.block.append(Block(width, widths[level]))
                width = widths[level]
                if level == 1:
                    up.attn.append(Attention(width))
            if level:
                up.upsample = nn.ModuleDict({"conv": nn.Conv2d(width, width, 3, 1, 1)})
        self.norm_out, self.conv_out = norm(width), nn.Conv2d(width, 3, 3, 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.mid["block_2"](self.mid["attn_1"](self.mid["block_1"](self.conv_in(x))))
        for level in reversed(range(len(self.up))):
            up = self.up[level]
            for index, block in enumerate(up.block):
                x = block(x)
                x = up.attn[index](x) if up.attn else x
            if level:
                x = up.upsample["conv"](F.interpolate(x, scale_factor=2.0, mode="nearest"))
        return self.conv_out(F.silu(self.norm_out(x)))


class Vqgan(nn.Module):
    def __init__(self, **sizes) -> None:
        super().__init__()
        self.post_quant_conv = nn.Conv2d(EMBEDDING, EMBEDDING, 1)
        self.decoder = Decoder(**sizes)
        self.encoder = nn.Conv2d(3, EMBEDDING, 3)  # not asked for

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        return self.decoder(self.post_quant_conv(z))


def random_module(**sizes) -> Vqgan:
    torch.manual_seed(0)
    made = Vqgan(**sizes).double().requires_grad_(False)
    for name, parameter in made.named_parameters():
        if "norm" in name:
            parameter += 0.3 * torch.randn_like(parameter)
    return made


@pytest.mark.parametrize("sizes", [{}, {"widths": (32,), "blocks": 2}, {"widths": (64, 32), "blocks": 0}])
def test_the_module_and_its_stages_agree(sizes: dict):
    module = random_module(**sizes)
    book = torch.randn(CODES, EMBEDDING)
    model = FloatVqgan((book,), 2, SHAPE, None, vqgan_stages(module.state_dict()))
    codes = np.random.default_rng(0).integers(0, CODES, (3, *SHAPE, 2))
    wanted = module(book.double()[torch.from_numpy(codes)].sum(3).permute(0, 3, 1, 2))
    wanted = ((wanted + 1) * 127.5).clamp(0, 255).permute(0, 2, 3, 1).numpy()
    assert wanted.std() > 10
    np.testing.assert_allclose(float_frames(model, codes), wanted, atol=1e-9)
    found = decode_frames(quantize_decoder(model), codes)
    assert 10 * np.log10(255**2 / np.square(found - wanted).mean()) > 35


@pytest.mark.parametrize(
    "name", ["post_quant_conv.bias", "decoder.mid.attn_1.k.weight", "decoder.up.1.upsample.conv.bias"]
)
def test_a_missing_tensor_is_named(name: str):
    tensors = random_module().state_dict()
    del tensors[name]
    with pytest.raises(CheckpointError, match=f"{name}: no such tensor"):
        vqgan_stages(tensors)


@pytest.mark.parametrize("name", ["decoder.up.0.upsample.conv.weight", "decoder.mid.block_1.temb_proj.weight"])
def test_a_tensor_that_no_stage_uses_is_named(name: str):
    tensors = random_module().state_dict() | {name: torch.zeros(1)}
    with pytest.raises(CheckpointError, match=f"{name}: a tensor that no stage uses"):
        vqgan_stages(tensors)


@pytest.mark.parametrize("part", ["decoder.up.1", "decoder.up.2.block.0", "decoder.up.1.attn.0"])
def test_a_part_left_out_is_named(part: str):
    tensors = {name: x for name, x in random_module().state_dict().items() if not name.startswith(part + ".")}
    with pytest.raises(CheckpointError, match=f"{part}: no such tensors"):
        vqgan_stages(tensors)
