"""Muon (Jordan et al. 2024): momentum whose update is made orthogonal, for the matrices inside the layers.

Every direction of a matrix is learned at the same pace, which needs fewer clips than AdamW and leaves no few channels
that grow far beyond the others, so the weights also quantize well.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

__all__ = ["Muon", "orthogonalize"]

_QUINTIC = (3.4445, -4.7750, 2.0315)  # drives every singular value close to 1 in five steps


def orthogonalize(matrix: torch.Tensor, steps: int = 5) -> torch.Tensor:
    """matrix (rows, columns) -> the same singular vectors, singular values about 1 (Newton-Schulz iteration)."""
    a, b, c = _QUINTIC
    wide = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    x = wide / (wide.norm() + 1e-7)
    for _ in range(steps):
        gram = x @ x.T
        x = torch.addmm(x, b * gram + c * (gram @ gram), x, beta=a)
    return x if wide is matrix else x.T


class Muon(torch.optim.Optimizer):
    """Nesterov momentum, orthogonalized, scaled to the same change per output whatever the shape; decoupled decay."""

    def __init__(
        self, parameters: Iterable[torch.Tensor], rate: float, momentum: float = 0.95, weight_decay: float = 0.0
    ) -> None:
        super().__init__(parameters, {"lr": rate, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                buffer = self.state[parameter].setdefault("buffer", torch.zeros_like(parameter))
                buffer.lerp_(parameter.grad, 1 - group["momentum"])
                update = orthogonalize(parameter.grad.lerp(buffer, group["momentum"]))
                rows, columns = parameter.shape
                parameter.mul_(1 - group["lr"] * group["weight_decay"])
                parameter.add_(update, alpha=-group["lr"] * max(1.0, rows / columns) ** 0.5)
