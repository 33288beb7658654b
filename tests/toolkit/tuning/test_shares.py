"""The dealing of a ratio against a search over all dealings of a grid."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from fastcar.toolkit.tuning.shares import deal

POINTS = np.array([0.0, 0.25, 0.5, 0.75, 1.0])


def cost_of(shares: np.ndarray, costs: np.ndarray) -> float:
    return sum(float(np.interp(share, POINTS, curve)) for share, curve in zip(shares, costs, strict=True))


@pytest.mark.parametrize("seed", range(20))
def test_no_dealing_of_a_grid_costs_less(seed: int):
    rng = np.random.default_rng(seed)
    steps = np.sort(rng.exponential(1, (3, 4)), axis=1)  # convex curves: what they cost is what the hull costs
    costs = np.concatenate([np.zeros((3, 1)), steps.cumsum(axis=1)], axis=1)
    for quarters in range(13):
        ratio = quarters / 12
        dealt = deal(POINTS, costs, ratio)
        assert dealt.mean() == pytest.approx(ratio) and (dealt >= 0).all() and (dealt <= 1).all()
        grid = [np.array(s) for s in product(POINTS, repeat=3) if np.isclose(np.mean(s), ratio)]
        best = min(cost_of(shares, costs) for shares in grid)
        assert cost_of(dealt, costs) <= best + 1e-9


def test_a_curve_with_a_bump_is_crossed_on_its_hull():
    costs = np.array([[0, 5.0, 5.2, 5.3, 1.0], [0, 1.0, 2.0, 3.0, 4.0]])
    assert deal(POINTS, costs, 0.5) == pytest.approx([1, 0])  # the first layer costs 1 a whole, the second 4


@pytest.mark.parametrize(
    "shares, ratio", [(POINTS[1:], 0.5), (POINTS[::-1], 0.5), (POINTS, 1.5), (POINTS, -0.1), (POINTS[:3], 0.5)]
)
def test_what_is_no_dealing_is_refused(shares: np.ndarray, ratio: float):
    with pytest.raises(ValueError, match="expected"):
        deal(shares, np.zeros((2, 5)), ratio)
