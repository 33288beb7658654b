"""Two-level group scales: an integer multiplier for each group of inputs under one float scale an output channel.

    scale[o, g] = multiplier[o, g] * channel_scale[o],   multiplier in 1..18

so that a 4-bit weight times its multiplier is an int8 weight under the channel scale, exactly.
"""

from __future__ import annotations

import torch
from torch import nn

__all__ = ["MULTIPLIER_MAX", "TwoLevelScaling", "fit_multiplier", "fit_two_level"]

LEVEL_MAX = 7  # largest 4-bit value of a narrow range
MULTIPLIER_MAX = 18  # 7 * 18 = 126 <= 127
MANTISSA_BITS = 16  # 16 bits of scale times at most 7 bits of integer fit the 24 of binary32: every product is exact
CHANNEL_PEAK_FLOOR = 2.0**-24  # a channel whose weights are all below is stored as zeros under this range
CHANNEL_STEPS = (18, 15, 12)  # multiplier that the channel's largest weight is tried to land on


def _short_mantissa(x: torch.Tensor) -> torch.Tensor:
    """x rounded up to ``MANTISSA_BITS`` significant bits."""
    mantissa, exponent = torch.frexp(x)
    return torch.ldexp(torch.ceil(mantissa * 2**MANTISSA_BITS), exponent - MANTISSA_BITS)


def _squared_error(grouped: torch.Tensor, importance: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """(out, groups, size) weights under ``scale`` (out, groups, 1) or (out, 1, 1) -> error (out, groups)."""
    rounded = torch.clamp(torch.round(grouped / scale), -LEVEL_MAX, LEVEL_MAX) * scale
    return ((grouped - rounded).square_() * importance).sum(dim=-1)


def fit_multiplier(
    grouped: torch.Tensor, importance: torch.Tensor, channel_scale: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Multipliers (out, groups) with the least importance-weighted squared error, and that error (out, groups).

    grouped (out, groups, size), importance (groups, size), channel_scale (out, 1, 1).
    """
    best = torch.full(grouped.shape[:2], torch.inf)
    multiplier = torch.ones(grouped.shape[:2])
    for candidate in range(1, MULTIPLIER_MAX + 1):
        error = _squared_error(grouped, importance, channel_scale * candidate)
        better = error < best
        best = torch.where(better, error, best)
        multiplier = torch.where(better, torch.full_like(multiplier, candidate), multiplier)
    return multiplier, best


def fit_two_level(grouped: torch.Tensor, importance: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Channel scales (out, 1, 1) and multipliers (out, groups, 1) of weights (out, groups, size).

    Each channel takes the scale of ``CHANNEL_STEPS`` whose best multipliers leave the least error in sum.
    """
    peak = grouped.abs().amax(dim=(1, 2), keepdim=True).clamp_min(CHANNEL_PEAK_FLOOR)
    least = torch.full((grouped.shape[0],), torch.inf)
    channel_scale = torch.empty_like(peak)
    multiplier = torch.empty(grouped.shape[:2])
    for steps in CHANNEL_STEPS:
        scale = _short_mantissa(peak / (LEVEL_MAX * steps))
        candidate, error = fit_multiplier(grouped, importance, scale)
        total = error.sum(dim=1)
        better = total < least
        least = torch.where(better, total, least)
        channel_scale[better], multiplier[better] = scale[better], candidate[better]
    return channel_scale, multiplier.unsqueeze(-1)


class TwoLevelScaling(nn.Module):
    """Scaling implementation of a Brevitas weight quantizer; fitted once, then constant.

    ``weight`` (out, in) -> scale (out, groups, 1), shaped to broadcast over Brevitas's group view of the weight.
    It is fitted to the first weight it sees with equal importance, or by ``fit`` with the importance of each input.
    """

    def __init__(self, expanded_groupwise_shape: tuple[int, ...]) -> None:
        super().__init__()
        outputs, groups, size = expanded_groupwise_shape
        self.grouped_shape = (outputs, groups, size)
        self.group_size = size
        self.register_buffer("channel_scale", torch.ones(outputs, 1, 1))
        self.register_buffer("multiplier", torch.ones(outputs, groups, 1))
        self.init_done = False

    @torch.no_grad()
    def fit(self, weight: torch.Tensor, importance: torch.Tensor | None = None) -> None:
        """Choose scale and multipliers for ``weight`` (out, in); importance (in,), say the mean square of inputs."""
        _, groups, size = self.grouped_shape
        importance = torch.ones(groups, size) if importance is None else importance.view(groups, size)
        self.channel_scale, self.multiplier = fit_two_level(weight.detach().view(self.grouped_shape), importance)
        self.init_done = True

    @torch.no_grad()
    def refit_group(self, group: int, weight: torch.Tensor, importance: torch.Tensor) -> None:
        """Choose the multipliers of one group again for its weights (out, size) as they are now."""
        multiplier, _ = fit_multiplier(weight.unsqueeze(1), importance.view(1, -1), self.channel_scale)
        self.multiplier[:, group] = multiplier

    def forward(self, weight: torch.Tensor, threshold: torch.Tensor | None = None) -> torch.Tensor:
        """``threshold``, the largest integer, is Brevitas's; multipliers are chosen for it and need no division."""
        if not self.init_done:
            self.fit(weight)
        return self.channel_scale * self.multiplier
