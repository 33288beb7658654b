"""Two-level group scales: an integer multiplier for each group of inputs under one float scale an output channel.

    scale[o, g] = multiplier[o, g] * channel_scale[o],   multiplier in 1..18

so that a 4-bit weight times its multiplier is an int8 weight under the channel scale, exactly.
"""

from __future__ import annotations

import torch
from torch import nn

from .two_level_fit import fit_multiplier, fit_two_level

__all__ = ["TwoLevelScaling"]


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
