"""A plain reading of VILA-U over dictionaries of tensors, for the modules of ``export`` to be compared with.

Written from the architecture alone: loops over positions and heads in place of modules and fused attention.
"""

from __future__ import annotations

import math

import torch

Tensors = dict[str, torch.Tensor]


def _affine(x: torch.Tensor, state: Tensors, name: str) -> torch.Tensor:
    return x @ state[f"{name}.weight"].T + state[f"{name}.bias"]


def _layer_norm(x: torch.Tensor, state: Tensors, name: str) -> torch.Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return (
        centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt() * state[f"{name}.weight"]
        + state[f"{name}.bias"]
    )


def _gelu(x: torch.Tensor) -> torch.Tensor:
    return x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))


def _books(vision: Tensors, codes: torch.Tensor, shared: bool) -> list[torch.Tensor]:
    name = "rqvaesiglip.quantizer.codebooks.{}.weight"
    return [vision[name.format(0 if shared else d)][codes[..., d]] for d in range(codes.shape[-1])]


def backbone_input(vision: Tensors, projector: Tensors, codes: torch.Tensor, shared: bool) -> torch.Tensor:
    """codes (n, D) -> what the backbone reads (n, hidden)."""
    x = sum(_books(vision, codes, shared))
    if "layers.weight" in projector:
        return _affine(x, projector, "layers")
    for index in range(0, len(projector), 2):
        x = _affine(_gelu(x) if index else x, projector, f"layers.{index}")
    return x


def depth_logits(vision: Tensors, hidden: torch.Tensor, codes: torch.Tensor, heads: int, shared: bool) -> torch.Tensor:
    """Logits (n, D, codes), each depth position computed anew from all before it."""
    state = {name.removeprefix("rqtransformer."): value for name, value in vision.items()}
    books, columns = _books(vision, codes, shared), []
    inputs = [_affine(hidden, state, "in_mlp_2")]
    for depth in range(1, codes.shape[-1]):
        inputs.append(_affine(sum(books[:depth]), state, "in_mlp_1"))
    for depth in range(codes.shape[-1]):
        x = torch.stack(inputs[: depth + 1], 1) + state["pos_emb_d"][:, : depth + 1]
        block = 0
        while f"head_transformer.blocks.{block}.ln1.weight" in state:
            x = _block(x, state, f"head_transformer.blocks.{block}", heads)
            block += 1
        normed = _layer_norm(x[:, -1], state, "classifier_mlp.layer_norm")
        columns.append(_affine(normed, state, "classifier_mlp.linear"))
    return torch.stack(columns, 1)


def _block(x: torch.Tensor, state: Tensors, name: str, heads: int) -> torch.Tensor:
    normed, size = _layer_norm(x, state, f"{name}.ln1"), x.shape[-1] // heads
    q, k, v = (_affine(normed, state, f"{name}.attn.{part}") for part in ("query", "key", "value"))
    later = torch.ones(x.shape[1], x.shape[1]).triu(1).bool()
    mixed = []
    for head in range(heads):
        of = slice(head * size, (head + 1) * size)
        scores = q[..., of] @ k[..., of].transpose(1, 2) / math.sqrt(size)
        mixed.append(scores.masked_fill(later, -math.inf).softmax(-1) @ v[..., of])
    x = x + _affine(torch.cat(mixed, -1), state, f"{name}.attn.proj")
    inner = _gelu(_affine(_layer_norm(x, state, f"{name}.ln2"), state, f"{name}.mlp.0"))
    return x + _affine(inner, state, f"{name}.mlp.2")


def pictures(vision: Tensors, codes: torch.Tensor, shared: bool, latent: tuple[int, int] | None) -> torch.Tensor:
    """codes (frames, h, w, D) -> (frames, 3, height, width) in 0..255."""
    state = {name.removeprefix("rqvaesiglip."): value for name, value in vision.items()}
    x = sum(_books(vision, codes, shared)).permute(0, 3, 1, 2)
    if latent:
        x = _bilinear(_bilinear(x, latent[0], 2), latent[1], 3)
    x = _conv(_conv(x, state, "post_quant_conv"), state, "decoder.conv_in")
    x = _residual(x, state, "decoder.mid.block_1")
    x = _residual(_attention(x, state, "decoder.mid.attn_1"), state, "decoder.mid.block_2")
    coarsest = max(int(name.split(".")[2]) for name in state if name.startswith("decoder.up."))
    for level in range(coarsest, -1, -1):
        block, name = 0, f"decoder.up.{level}"
        while f"{name}.block.{block}.norm1.weight" in state:
            x = _residual(x, state, f"{name}.block.{block}")
            if f"{name}.attn.{block}.q.weight" in state:
                x = _attention(x, state, f"{name}.attn.{block}")
            block += 1
        if level:
            x = _conv(x.repeat_interleave(2, 2).repeat_interleave(2, 3), state, f"{name}.upsample.conv")
    x = _conv(_silu(_group_norm(x, state, "decoder.norm_out")), state, "decoder.conv_out")
    return ((x + 1) * 127.5).clamp(0, 255)


def _bilinear(x: torch.Tensor, size: int, axis: int) -> torch.Tensor:
    old = x.shape[axis]
    where = ((torch.arange(size) + 0.5) * old / size - 0.5).clamp(0, old - 1)
    low = where.floor().long()
    share = (where - low).view([-1 if dim == axis else 1 for dim in range(4)])
    high = (low + 1).clamp(max=old - 1)
    return x.index_select(axis, low) * (1 - share) + x.index_select(axis, high) * share


def _silu(x: torch.Tensor) -> torch.Tensor:
    return x / (1 + (-x).exp())


def _group_norm(x: torch.Tensor, state: Tensors, name: str) -> torch.Tensor:
    groups = x.reshape(len(x), 32, -1)
    centred = groups - groups.mean(-1, keepdim=True)
    normed = (centred / (centred.square().mean(-1, keepdim=True) + 1e-6).sqrt()).reshape(x.shape)
    return normed * state[f"{name}.weight"].view(-1, 1, 1) + state[f"{name}.bias"].view(-1, 1, 1)


def _conv(x: torch.Tensor, state: Tensors, name: str) -> torch.Tensor:
    """As a product over shifted maps."""
    weight, (height, width) = state[f"{name}.weight"], x.shape[2:]
    edge = weight.shape[-1] // 2
    padded = torch.nn.functional.pad(x, (edge,) * 4)
    total = state[f"{name}.bias"].view(1, -1, 1, 1)
    for row in range(weight.shape[2]):
        for column in range(weight.shape[3]):
            shifted = padded[:, :, row : row + height, column : column + width]
            total = total + torch.einsum("oi,fihw->fohw", weight[:, :, row, column], shifted)
    return total


def _residual(x: torch.Tensor, state: Tensors, name: str) -> torch.Tensor:
    y = _conv(_silu(_group_norm(x, state, f"{name}.norm1")), state, f"{name}.conv1")
    y = _conv(_silu(_group_norm(y, state, f"{name}.norm2")), state, f"{name}.conv2")
    return y + (_conv(x, state, f"{name}.nin_shortcut") if f"{name}.nin_shortcut.weight" in state else x)


def _attention(x: torch.Tensor, state: Tensors, name: str) -> torch.Tensor:
    normed = _group_norm(x, state, f"{name}.norm")
    q, k, v = (_conv(normed, state, f"{name}.{part}").flatten(2) for part in "qkv")
    share = (torch.einsum("fci,fcj->fij", q, k) / math.sqrt(x.shape[1])).softmax(-1)
    return x + _conv(torch.einsum("fij,fcj->fci", share, v).reshape(x.shape), state, f"{name}.proj_out")
