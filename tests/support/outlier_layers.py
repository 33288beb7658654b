"""Linear layers with the statistics that make language models hard to quantize, where no such model is at hand.

Synthetic, after what is reported of LLaMA-like decoders (arXiv 2211.10438 and 2306.00978 on outlier channels,
2402.17762 on massive activations, 2306.07629 on the tails of weights):

- weights: Student's t with 5 degrees of freedom, under log-normal scales of outputs (sigma 0.3) and inputs (0.3);
- activations: correlated (7 tenths of a channel's variance is shared, in an eighth as many factors as channels, the
  k-th of variance 1 / k) under log-normal channel scales;
- ``norm`` (read by q, k, v, gate and up): scale sigma 0.6, rows of equal norm, and one channel in 1024, at least two,
  40 times larger, of one sign, read by weights a quarter as large;
- ``mixed`` (read by the output projection): scale sigma 0.5, no outlier channels;
- ``gated`` (read by the down projection): silu(g) * u, scale sigma 0.6; in one row of 256 two channels are massive,
  300 times what is usual.

Calibration and held-out rows are drawn from the same distribution.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn import functional as F

__all__ = ["KINDS", "OutlierLayer", "outlier_layer"]

KINDS = ("norm", "mixed", "gated")
SHARED = 0.7
MASSIVE_ROWS = 256


@dataclass(frozen=True)
class OutlierLayer:
    """weight (out, in), calibration (rows, in), held_out (rows, in), all float32."""

    kind: str
    weight: torch.Tensor
    calibration: torch.Tensor
    held_out: torch.Tensor


def outlier_layer(kind: str, inputs: int, outputs: int, rows: int, held_out: int, seed: int = 0) -> OutlierLayer:
    """One layer of a kind; the same numbers for the same arguments."""
    draw = _Draw(torch.Generator().manual_seed(seed))
    weight = draw.student(outputs, inputs) * draw.scales(outputs, 0.3)[:, None] * draw.scales(inputs, 0.3)
    x = {"norm": _norm, "mixed": _mixed, "gated": _gated}[kind](draw, rows + held_out, inputs)
    if kind == "norm":
        weight[:, _outliers(inputs)] /= 4
    order = torch.randperm(inputs, generator=draw.generator)
    x, weight = x[:, order], weight[:, order].div_(inputs**0.5)
    return OutlierLayer(kind, weight, x[:rows], x[rows:])


def _outliers(inputs: int) -> slice:
    return slice(0, max(2, inputs // 1024))


def _norm(draw: _Draw, rows: int, inputs: int) -> torch.Tensor:
    x = draw.correlated(rows, inputs) * draw.scales(inputs, 0.6)
    x[:, _outliers(inputs)] = 40 * (1 + 0.3 * x[:, _outliers(inputs)])
    return x / x.square().mean(dim=1, keepdim=True).sqrt()


def _mixed(draw: _Draw, rows: int, inputs: int) -> torch.Tensor:
    return draw.correlated(rows, inputs) * draw.scales(inputs, 0.5)


def _gated(draw: _Draw, rows: int, inputs: int) -> torch.Tensor:
    x = F.silu(draw.correlated(rows, inputs)).mul_(draw.correlated(rows, inputs)).mul_(draw.scales(inputs, 0.6))
    x[::MASSIVE_ROWS, :2] = 300 * (1 + 0.1 * draw.normal(len(x[::MASSIVE_ROWS]), 2))
    return x


class _Draw:
    def __init__(self, generator: torch.Generator) -> None:
        self.generator = generator

    def normal(self, *shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=self.generator)

    def scales(self, channels: int, sigma: float) -> torch.Tensor:
        return self.normal(channels).mul_(sigma).exp_()

    def student(self, outputs: int, inputs: int, freedom: int = 5) -> torch.Tensor:
        square = sum(self.normal(outputs, inputs).square_() for _ in range(freedom))
        return self.normal(outputs, inputs) / (square / freedom).sqrt()

    def correlated(self, rows: int, channels: int) -> torch.Tensor:
        """(rows, channels) of unit variance."""
        factors = max(1, channels // 8)
        loadings = self.normal(factors, channels) / torch.arange(1.0, factors + 1)[:, None].sqrt()
        loadings *= (SHARED / loadings.square().sum(dim=0)).sqrt()
        return (self.normal(rows, factors) @ loadings).add_(self.normal(rows, channels), alpha=(1 - SHARED) ** 0.5)
