"""The search for two-level scales: all multipliers of all groups, in blocks that stay in a core's cache.

Weights are read from memory once, not once a multiplier and operation, which is some 20 times faster. Blocks are whole
output channels, shared out to threads: no channel's result depends on another's, nor on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch

__all__ = ["LEVEL_MAX", "MULTIPLIER_MAX", "fit_multiplier", "fit_two_level"]

LEVEL_MAX = 7  # largest 4-bit value of a narrow range
MULTIPLIER_MAX = 18  # 7 * 18 = 126 <= 127
MANTISSA_BITS = 16  # 16 bits of scale times at most 7 bits of integer fit the 24 of binary32: every product is exact
CHANNEL_PEAK_FLOOR = 2.0**-24  # a channel whose weights are all below is stored as zeros under this range
CHANNEL_STEPS = (18, 15, 12)  # multiplier that the channel's largest weight is tried to land on
BLOCK_WEIGHTS = 1 << 16  # 256 KB, and 18 times as much work space: it stays in the cache of the last level


def fit_multiplier(
    grouped: torch.Tensor, importance: torch.Tensor, channel_scale: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Multipliers (out, groups) with the least importance-weighted squared error, and that error (out, groups).

    grouped (out, groups, size), importance (groups, size), channel_scale (out, 1, 1). Of equal errors the smallest
    multiplier counts.
    """
    multiplier, error = torch.empty(grouped.shape[:2]), torch.empty(grouped.shape[:2])

    def fit(channels: slice) -> None:
        error[channels], multiplier[channels] = _Block(grouped[channels], importance).best(channel_scale[channels])

    _in_blocks(grouped, fit)
    return multiplier, error


def fit_two_level(grouped: torch.Tensor, importance: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Channel scales (out, 1, 1) and multipliers (out, groups, 1) of weights (out, groups, size).

    Each channel takes the scale of ``CHANNEL_STEPS`` whose best multipliers leave the least error in sum.
    """
    channel_scale, multiplier = torch.empty(grouped.shape[0], 1, 1), torch.empty(grouped.shape[:2])

    def fit(channels: slice) -> None:
        block = _Block(grouped[channels], importance)
        peak = block.grouped.abs().amax(dim=(1, 2), keepdim=True).clamp_min(CHANNEL_PEAK_FLOOR)
        least = torch.full((peak.shape[0],), torch.inf)
        for steps in CHANNEL_STEPS:
            scale = _short_mantissa(peak / (LEVEL_MAX * steps))
            error, candidate = block.best(scale)
            total = error.sum(dim=1)
            better = total < least
            least = torch.where(better, total, least)
            channel_scale[channels][better], multiplier[channels][better] = scale[better], candidate[better]

    _in_blocks(grouped, fit)
    return channel_scale, multiplier.unsqueeze(-1)


class _Block:
    """Some channels' weights (out, groups, size), and work space for them under each multiplier."""

    def __init__(self, grouped: torch.Tensor, importance: torch.Tensor) -> None:
        self.grouped = grouped
        self.importance = None if (importance == 1).all() else importance
        self._work = torch.empty(MULTIPLIER_MAX, *grouped.shape)

    def best(self, channel_scale: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Least errors and their multipliers, both (out, groups), under the scales (out, 1, 1).

        The error is the sum over a group of importance * (weight - level * scale)^2. ``addcmul`` may contract its
        product and sum: the product is exact, so it makes no difference.
        """
        scale = channel_scale * torch.arange(1.0, MULTIPLIER_MAX + 1).view(-1, 1, 1, 1)
        level = torch.div(self.grouped, scale, out=self._work).round_().clamp_(-LEVEL_MAX, LEVEL_MAX)
        squared = torch.addcmul(self.grouped, level, scale, value=-1, out=self._work).square_()
        if self.importance is not None:
            squared.mul_(self.importance)
        least, first = squared.sum(dim=-1).min(dim=0)
        return least, (first + 1).float()


def _short_mantissa(x: torch.Tensor) -> torch.Tensor:
    """x rounded up to ``MANTISSA_BITS`` significant bits."""
    mantissa, exponent = torch.frexp(x)
    return torch.ldexp(torch.ceil(mantissa * 2**MANTISSA_BITS), exponent - MANTISSA_BITS)


def _in_blocks(grouped: torch.Tensor, fit: Callable[[slice], None]) -> None:
    """Call ``fit`` for slices of channels, on as many threads as torch uses, each of them on its own."""
    outputs, threads = grouped.shape[0], torch.get_num_threads()
    step = max(1, BLOCK_WEIGHTS * outputs // max(1, grouped.numel()))
    blocks = [slice(first, first + step) for first in range(0, outputs, step)]
    if threads == 1 or len(blocks) == 1:
        for block in blocks:
            fit(block)
        return
    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(fit, blocks))
    finally:
        torch.set_num_threads(threads)
