"""SwiGLU and the MLP that computes only the rows that do not replay."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
from random_models import config, random_layer

from fastcar.toolkit.numerics import mlp

EPS = 1e-5


@pytest.fixture(params=[8, 4])
def layer(request):
    groups = {} if request.param == 8 else {"gate_up": 4, "down": 4}
    return random_layer(np.random.default_rng(0), config(), groups)


def swiglu_in_python(gate: float, up: float) -> float:
    return gate / (1 + math.exp(-max(min(gate, 500), -500))) * up


def test_swiglu():
    """The sigmoid is within 2^-17 + 2^-10, half an index included; so is the product, times |gate up|."""
    rng = np.random.default_rng(0)
    gate = np.concatenate([rng.normal(0, 4, 4000), [0, 1e-9, -15.99, 15.99, -16, 16, 40, -40]]).astype(np.float32)
    up = rng.normal(0, 3, gate.size).astype(np.float32)
    found = mlp.swiglu(gate, up)
    exact = np.array([swiglu_in_python(g, u) for g, u in zip(gate.tolist(), up.tolist(), strict=True)])
    assert found.dtype == np.float32
    assert (np.abs(found - exact) <= (2**-17 + 2**-10) * np.abs(gate.astype(float) * up) + 1e-30).all()


def test_swiglu_far_out():
    gate = np.array([1e4, -1e4, 3e30, -3e30], np.float32)
    found = mlp.swiglu(gate, np.full(4, 1e-3, np.float32))
    np.testing.assert_allclose(found[[0, 2]], gate[[0, 2]] * 1e-3, rtol=2e-5)
    assert np.abs(found[[1, 3]] / gate[[1, 3]]).max() <= 1e-3 * 2**-16


def mlp_in_binary64(x, layer):
    deq = lambda linear: linear.expanded().astype(np.float64) * linear.scale
    normed = x / np.sqrt(np.mean(x.astype(np.float64) ** 2, axis=-1, keepdims=True) + EPS) * layer.mlp_gain
    gate, up = np.split(normed @ deq(layer.gate_up), 2, axis=-1)
    return gate / (1 + np.exp(-gate)) * up @ deq(layer.down)


@pytest.mark.parametrize("rows", [1, 2, 10])
def test_computed_rows(layer, rows):
    """Two int8 roundings of activations stay within 3 % of the output's size."""
    x = np.random.default_rng(rows).normal(0, 2, (rows, 48)).astype(np.float32)
    used, cached = mlp.replay_mlp(x, np.zeros(rows, bool), np.full((rows, 48), 0x7FC0, np.uint16), layer, EPS)
    exact = mlp_in_binary64(x, layer)
    assert used.dtype == np.float32 and cached.dtype == np.uint16
    assert np.linalg.norm(used - exact) < 0.03 * np.linalg.norm(exact)
    np.testing.assert_array_equal(cached.view(ml_dtypes.bfloat16).astype(np.float32), used)


@pytest.mark.parametrize("replay", [[0, 1, 0], [1, 0, 1], [1, 1, 1], [0, 0, 0]])
def test_only_the_needed_rows_are_computed(layer, replay, monkeypatch):
    """Rows that replay hold NaN: nothing may look at them. Their cached output is used and cached again."""
    replay = np.array(replay, bool)
    x = np.random.default_rng(5).normal(0, 2, (3, 48)).astype(np.float32)
    one = np.zeros(1, bool), np.zeros((1, 48), np.uint16), layer, EPS
    alone = [mlp.replay_mlp(x[i : i + 1], *one)[0][0] for i in range(3)]
    x[replay] = np.nan
    cached = np.random.default_rng(6).normal(0, 1, (3, 48)).astype(ml_dtypes.bfloat16)
    rows, linear = [], mlp.linear
    monkeypatch.setattr(mlp, "linear", lambda x, weights: rows.append(len(x.values)) or linear(x, weights))
    used, to_cache = mlp.replay_mlp(x, replay, cached.view(np.uint16), layer, EPS)
    assert rows == [int((~replay).sum())] * 2 if not replay.all() else not rows
    for row in range(3):
        np.testing.assert_array_equal(used[row], cached[row].astype(np.float32) if replay[row] else alone[row])
    np.testing.assert_array_equal(to_cache.view(ml_dtypes.bfloat16).astype(np.float32), used)


def test_the_cache_handed_in_is_not_written(layer):
    cached = np.full((2, 48), 0x4000, np.uint16)
    mlp.replay_mlp(np.ones((2, 48), np.float32), np.array([False, True]), cached, layer, EPS)
    assert (cached == 0x4000).all()
