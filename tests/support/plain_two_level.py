"""The definition of two-level scales, word by word: slow, and obviously what it says."""

from __future__ import annotations

import torch


def short_mantissa(x: torch.Tensor) -> torch.Tensor:
    mantissa, exponent = torch.frexp(x)
    return torch.ldexp(torch.ceil(mantissa * 2**16), exponent - 16)


def squared_error(grouped: torch.Tensor, importance: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    rounded = torch.clamp(torch.round(grouped / scale), -7, 7) * scale
    return ((grouped - rounded).square() * importance).sum(dim=-1)


def first_of(candidates: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Index along dimension 0 of the first candidate that equals the value."""
    return (torch.cumsum(candidates == value, dim=0) == 0).sum(dim=0)


def plain_fit_multiplier(
    grouped: torch.Tensor, importance: torch.Tensor, channel_scale: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Every multiplier tried for every group, the first of the least error taken."""
    errors = torch.stack([squared_error(grouped, importance, channel_scale * m) for m in range(1, 19)])
    least = errors.amin(dim=0)
    return first_of(errors, least) + 1.0, least


def plain_fit_two_level(grouped: torch.Tensor, importance: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The largest weight of a channel lands on 7 x 18, 7 x 15 or 7 x 12 steps; the first of the least error taken."""
    peak = grouped.abs().amax(dim=(1, 2), keepdim=True).clamp_min(2.0**-24)
    tried = []
    for steps in (18, 15, 12):
        scale = short_mantissa(peak / (7 * steps))
        multiplier, error = plain_fit_multiplier(grouped, importance, scale)
        tried.append((error.sum(dim=1), scale, multiplier))
    totals = torch.stack([total for total, _, _ in tried])
    choice = first_of(totals, totals.amin(dim=0))
    channels = torch.arange(grouped.shape[0])
    scale = torch.stack([scale for _, scale, _ in tried])[choice, channels]
    return scale, torch.stack([multiplier for _, _, multiplier in tried])[choice, channels].unsqueeze(-1)
