"""How a replay ratio is dealt to the layers, from what replay in each of them costs by itself."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

__all__ = ["deal"]


def deal(shares: np.ndarray, costs: np.ndarray, ratio: float) -> np.ndarray:
    """The shares (layers,) with mean ``ratio`` whose costs have the least sum.

    ``costs`` (layers, n) at ``shares`` (n,), which rise from 0 to 1: of each layer its lower convex hull counts, and
    the flattest pieces of all layers are taken first, which is the optimum for convex curves (the greedy solution of
    the fractional knapsack). ValueError for shares or a ratio outside these.
    """
    if shares[0] != 0 or shares[-1] != 1 or (np.diff(shares) <= 0).any() or costs.shape[1:] != shares.shape:
        raise ValueError(
            f"shares {shares}, costs {costs.shape}; expected shares that rise from 0 to 1, a cost for each"
        )
    if not 0 <= ratio <= 1:
        raise ValueError(f"ratio {ratio}; expected 0 to 1")
    pieces = []  # (slope, layer, width); a hull's slopes rise, so those of a layer are taken in order
    for layer, curve in enumerate(costs):
        corners = _lower_hull(shares, curve)
        for left, right in pairwise(corners):
            width = shares[right] - shares[left]
            pieces.append(((curve[right] - curve[left]) / width, layer, width))
    dealt, left = np.zeros(len(costs)), ratio * len(costs)
    for _, layer, width in sorted(pieces):
        taken = min(width, left)
        dealt[layer] += taken
        left -= taken
    return np.minimum(dealt, 1.0)


def _lower_hull(x: np.ndarray, y: np.ndarray) -> list[int]:
    """Indices of the corners, by Andrew's monotone chain."""
    hull: list[int] = []
    for i in range(len(x)):
        while len(hull) > 1:
            a, b = hull[-2], hull[-1]
            if (y[b] - y[a]) * (x[i] - x[a]) < (y[i] - y[a]) * (x[b] - x[a]):
                break
            hull.pop()
        hull.append(i)
    return hull
