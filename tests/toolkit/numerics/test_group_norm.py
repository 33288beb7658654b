"""GroupNorm against PyTorch's in binary64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from fastcar.toolkit.numerics.group_norm import GroupNorm, group_norm


def random_map(kind: str, channels: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    x = rng.normal(0, 1, (channels, 6, 9)) * rng.uniform(0.1, 3, (channels, 1, 1))
    if kind == "spike":
        x[1, 2, 3] = 200
    elif kind == "far from zero":
        x += rng.uniform(-300, 300, (channels, 1, 1))
    return (x * {"tiny": 1e-10, "below eps": 1e-4, "large": 1e15}.get(kind, 1.0)).astype(np.float32)


def random_norm(channels: int, groups: int) -> GroupNorm:
    rng = np.random.default_rng(1)
    return GroupNorm(*rng.uniform(-2, 2, (2, channels)).astype(np.float32), groups)


def torch_norm(x: np.ndarray, norm: GroupNorm) -> np.ndarray:
    parts = (torch.from_numpy(part.astype(np.float64)) for part in (norm.gain, norm.bias))
    return F.group_norm(torch.from_numpy(x.astype(np.float64))[None], norm.groups, *parts, norm.eps)[0].numpy()


@pytest.mark.parametrize(("channels", "groups"), [(32, 32), (64, 32), (6, 2), (5, 1)])
@pytest.mark.parametrize("kind", ["normal", "spike", "far from zero", "tiny", "below eps", "large"])
def test_formula(kind: str, channels: int, groups: int):
    """Mean and deviation move by at most half a step of the group's int16: see the bounds of LayerNorm."""
    x, norm = random_map(kind, channels), random_norm(channels, groups)
    found, expected = group_norm(x, norm), torch_norm(x, norm)
    rows = x.reshape(groups, -1).astype(np.float64)
    step, root = np.abs(rows).max(axis=1) / 32767, np.sqrt(rows.var(axis=1) + norm.eps)
    z = np.abs(rows - rows.mean(axis=1, keepdims=True)) / root[:, None]
    relative = 0.5001 * (step / root)[:, None] * (1 + z) + 1e-6 * (np.abs(rows) / root[:, None] + 1)
    bound = relative.reshape(x.shape) * np.abs(norm.gain)[:, None, None] + 1e-6 * np.abs(norm.bias)[:, None, None]
    assert (np.abs(found - expected) <= bound).all()


@pytest.mark.parametrize("value", [0.0, 1e-30, 3.0, -100.0])
def test_equal_values_leave_the_bias(value: float):
    """The deviation is sqrt(eps): what the value's last binary32 digits are of it is all that may be left."""
    norm = random_norm(8, 4)
    found = group_norm(np.full((8, 3, 3), value, np.float32), norm)
    np.testing.assert_allclose(
        found, np.tile(norm.bias[:, None, None], (1, 3, 3)), atol=1e-6 + abs(value) * 1e3 * 2**-21
    )


def test_the_largest_values_stay_numbers():
    assert np.isfinite(group_norm(np.full((4, 2, 2), -1e12, np.float32), random_norm(4, 2))).all()


def test_integers_in_python():
    """A group of 2^20 values near the ends of 16 bits, where an int32 or binary32 sum would be wrong."""
    x = np.full((1, 1024, 1024), 32767.0, np.float32)
    x[0, ::2] = 32001
    x[0, 0, 0] = -32767
    values = [int(value) for value in x.ravel()]
    mean = sum(values) / len(values)
    root = (sum(value * value for value in values) / len(values) - mean**2 + 1e-6) ** 0.5
    found = group_norm(x, GroupNorm(np.ones(1, np.float32), np.zeros(1, np.float32), 1))
    np.testing.assert_allclose(found, (x - mean) / root, rtol=2e-5, atol=2e-5)


def test_order_of_the_places_does_not_count():
    x, norm = random_map("spike", 64), random_norm(64, 32)
    order = np.random.default_rng(2).permutation(54)
    shuffled = group_norm(x.reshape(64, 54)[:, order].reshape(x.shape), norm)
    np.testing.assert_array_equal(shuffled.reshape(64, 54), group_norm(x, norm).reshape(64, 54)[:, order])


def test_channels_that_the_groups_do_not_divide_are_refused():
    with pytest.raises(ValueError, match="48 channels; expected a multiple of the 32 groups"):
        random_norm(48, 32)
