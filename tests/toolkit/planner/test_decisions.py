"""Decisions to plan with: exactly as many as asked for."""

from __future__ import annotations

import numpy as np
import pytest

from fastcar.toolkit.planner.decisions import replay_masks


@pytest.mark.parametrize("policy", ["all", "mean"])
@pytest.mark.parametrize("ratio", [0.0, 0.13, 0.5, 0.87, 1.0])
def test_together(policy: str, ratio: float) -> None:
    masks = replay_masks(4, 22, 3, ratio, policy)
    assert masks.shape == (4, 22) and masks.dtype == np.uint32
    assert set(np.unique(masks)) <= {0, 7}
    assert np.count_nonzero(masks) == round(ratio * 88)
    np.testing.assert_array_equal(masks, replay_masks(4, 22, 3, ratio, policy))


@pytest.mark.parametrize("rows", [1, 2, 10, 32])
def test_each_row_its_own(rows: int) -> None:
    masks = replay_masks(8, 32, rows, 0.6, "independent")
    flags = masks[..., None] >> np.arange(rows, dtype=np.uint32) & 1
    assert (flags.sum(axis=(0, 1)) == round(0.6 * 256)).all()
    if rows == 2:
        both = (flags == 1).all(axis=2).mean()
        assert 0.3 < both < 0.42, "0.36 if the rows have nothing to do with each other"


def test_what_cannot_be() -> None:
    with pytest.raises(ValueError, match="ratio 1.5"):
        replay_masks(1, 1, 1, 1.5, "all")
    with pytest.raises(ValueError, match="policy 'none'"):
        replay_masks(1, 1, 1, 0.5, "none")
