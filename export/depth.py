"""The depth transformer and the embedding of residual codes in float; parameter names are those of checkpoints.

Architecture: arXiv 2203.01941, section 3.2.2, with the hidden states of a language model as in arXiv 2409.04429.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from ..toolkit.config import DepthConfig

__all__ = ["CodeEmbedding", "DepthBlock", "DepthTransformer"]


class CodeEmbedding(nn.Module):
    """codes (..., D) int64 -> (..., backbone hidden): the sum of a position's embeddings, through the projector."""

    def __init__(self, config: DepthConfig, codes: int, backbone_hidden: int) -> None:
        super().__init__()
        self.config = config
        self.codebooks = nn.ModuleList(nn.Embedding(codes, config.code_dim) for _ in range(config.books))
        layers: list[nn.Module] = [nn.Linear(config.code_dim, backbone_hidden)]
        for _ in range(1, config.projector_layers):
            layers += [nn.GELU(), nn.Linear(backbone_hidden, backbone_hidden)]
        self.projector = nn.Sequential(*layers)

    def embed(self, codes: torch.Tensor) -> torch.Tensor:
        """Each code's own: (..., D) -> (..., D, code_dim). ValueError for another number of codes a position."""
        if codes.shape[-1] != self.config.codes_per_position:
            raise ValueError(f"{codes.shape[-1]} codes a position; the model has {self.config.codes_per_position}")
        books = [self.codebooks[index % len(self.codebooks)] for index in range(codes.shape[-1])]
        return torch.stack([book(code) for book, code in zip(books, codes.unbind(-1), strict=True)], dim=-2)

    def cumulative(self, codes: torch.Tensor) -> torch.Tensor:
        """(..., D) -> (..., D, code_dim): at d the sum of codes 0..d, which predicts code d + 1."""
        return self.embed(codes).cumsum(-2)

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        return self.projector(self.cumulative(codes)[..., -1, :])


class Attention(nn.Module):
    """Causal over the depth positions (n, D, hidden) of one position."""

    def __init__(self, config: DepthConfig) -> None:
        super().__init__()
        self.heads = config.heads
        for name in ("key", "query", "value", "proj"):
            setattr(self, name, nn.Linear(config.hidden, config.hidden))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (
            part(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (self.query, self.key, self.value)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(mixed.transpose(1, 2).flatten(2))


class DepthBlock(nn.Module):
    """x + attention(LayerNorm(x)), then x + MLP(LayerNorm(x)) with exact GELU."""

    def __init__(self, config: DepthConfig) -> None:
        super().__init__()
        self.ln1 = nn.LayerNorm(config.hidden, config.norm_eps)
        self.ln2 = nn.LayerNorm(config.hidden, config.norm_eps)
        self.attn = Attention(config)
        self.mlp = nn.Sequential(nn.Linear(config.hidden, config.mlp), nn.GELU(), nn.Linear(config.mlp, config.hidden))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attn(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class Classifier(nn.Module):
    def __init__(self, config: DepthConfig, codes: int) -> None:
        super().__init__()
        self.layer_norm = nn.LayerNorm(config.hidden, config.norm_eps)
        self.linear = nn.Linear(config.hidden, codes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(self.layer_norm(x))


class Blocks(nn.Module):
    def __init__(self, config: DepthConfig) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(DepthBlock(config) for _ in range(config.layers))


class DepthTransformer(nn.Module):
    """Teacher-forced: the backbone's normed hidden state and a position's codes -> logits of each of its codes."""

    def __init__(self, config: DepthConfig, codes: int, backbone_hidden: int) -> None:
        super().__init__()
        self.config = config
        self.in_mlp_1 = nn.Linear(config.code_dim, config.hidden)
        self.in_mlp_2 = nn.Linear(backbone_hidden, config.hidden)
        self.pos_emb_d = nn.Parameter(torch.zeros(1, config.codes_per_position, config.hidden))
        self.head_transformer = Blocks(config)
        self.classifier_mlp = Classifier(config, codes)

    def forward(self, hidden: torch.Tensor, cumulative: torch.Tensor) -> torch.Tensor:
        """hidden (n, backbone hidden), after the final norm; ``CodeEmbedding.cumulative`` (n, D, code_dim) ->
        (n, D, codes). Logits of code d see the codes before it only; the sum over all D codes is not looked at."""
        first = self.in_mlp_2(hidden).unsqueeze(1)
        x = torch.cat((first, self.in_mlp_1(cumulative[:, :-1])), dim=1) + self.pos_emb_d
        for block in self.head_transformer.blocks:
            x = block(x)
        return self.classifier_mlp(x)
