"""Sampling against an oracle in fractions, and against softmax probabilities."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from fastcar.toolkit.errors import UsageError
from fastcar.toolkit.numerics.sampling import guided_logits, sample
from fastcar.toolkit.numerics.tables import SAMPLE_BITS, exp2_table
from fastcar.toolkit.settings import SamplingSettings

ALL, CERTAIN, LARGEST = 1 << 40, 1 << 16, (1 << 24) - 1


def oracle(logits: list[float], uniform: int, temperature: float, top_k: int, top_p: Fraction) -> int:
    """Walk down the ranking: keep at most top_k codes, stop once top_p of their mass is kept, draw from the kept."""
    table = exp2_table(SAMPLE_BITS)
    scaled = [np.float32(x) * np.float32(1 / temperature) for x in logits]
    ranking = sorted(range(len(logits)), key=lambda code: (-scaled[code], code))[:top_k]
    steps = [(scaled[ranking[0]] - scaled[code]) * np.float32(1024 / np.log(2)) for code in ranking]
    weights = [Fraction(int(table[min(int(step), len(table) - 1)])) for step in steps]
    mass, kept = Fraction(0), []
    for code, weight in zip(ranking, weights, strict=True):
        if mass >= top_p * sum(weights):
            break
        kept.append((code, weight))
        mass += weight
    reached = Fraction(0)
    for code, weight in kept:
        reached += weight
        if Fraction(uniform, 1 << 24) * mass < reached:
            return code
    raise AssertionError("the kept codes hold all the mass")


@pytest.mark.parametrize("codes", [1, 5, 37])
@pytest.mark.parametrize("spread", [0.0, 0.5, 3.0, 40.0])
def test_oracle(codes, spread):
    rng = np.random.default_rng(codes)
    for top_k in {1, min(3, codes), codes}:
        for top_p in (1, 20000, 62915, 65536):
            for temperature in (0.5, 1.0, 1.7):
                logits = np.round(rng.normal(0, spread, (6, codes)), 1).astype(np.float32)  # ties among them
                uniform = np.array([0, LARGEST, *rng.integers(0, 1 << 24, 4)])
                found = sample(logits, uniform, 1 / temperature, top_k, top_p)
                expected = [
                    oracle(row, u, temperature, top_k, Fraction(top_p, 65536))
                    for row, u in zip(logits.tolist(), uniform.tolist(), strict=True)
                ]
                assert found.dtype == np.int64 and found.tolist() == expected


def test_greedy_takes_the_largest_and_of_equals_the_first():
    logits = np.array([[1, 3, 2, 3], [0, 0, 0, 0], [-9, -8, -7, -7], [0.0, -0.0, -1, -1]], np.float32)
    for uniform in (0, LARGEST):
        assert sample(logits, np.full(4, uniform), 1.0, 1, CERTAIN).tolist() == [1, 0, 2, 0]


def test_top_k_and_top_p_leave_out_the_rest():
    """Probabilities 8/15, 4/15, 2/15, 1/15: exact powers of two in the table."""
    logits = np.tile(np.log([1, 8, 2, 4]).astype(np.float32) + np.float32(1e-7), (1 << 12, 1))
    uniform = np.arange(1 << 12) << 12
    seen = lambda top_k, top_p: set(sample(logits, uniform, 1.0, top_k, top_p).tolist())
    assert [seen(k, CERTAIN) for k in (1, 2, 3, 4)] == [{1}, {1, 3}, {1, 3, 2}, {0, 1, 2, 3}]
    assert [seen(ALL, round(p * 65536)) for p in (0.5, 0.7, 0.9, 0.99)] == [{1}, {1, 3}, {1, 3, 2}, {0, 1, 2, 3}]
    assert seen(2, round(0.6 * 65536)) == {1}, "top_p is a share of what top_k left: 8/12 > 0.6"


def test_top_p_stops_exactly_at_its_share():
    """Two equal halves: a half is enough, a unit more is not."""
    logits, uniform = np.zeros((2, 2), np.float32), np.array([0, LARGEST])
    assert sample(logits, uniform, 1.0, 2, 32768).tolist() == [0, 0]
    assert sample(logits, uniform, 1.0, 2, 32769).tolist() == [0, 1]


@pytest.mark.parametrize("temperature", [0.7, 1.0, 2.0])
def test_distribution(temperature):
    """Chi-square of random draws, and the frequencies of evenly spread uniforms, against softmax."""
    rng = np.random.default_rng(4)
    logits = rng.normal(0, 1.5, 24).astype(np.float32)
    weight = np.exp((logits.astype(np.float64) - logits.max()) / temperature)
    exact, count = weight / weight.sum(), 1 << 14
    tiled = np.tile(logits, (count, 1))
    draw = lambda uniform: np.bincount(sample(tiled, uniform, 1 / temperature, ALL, CERTAIN), minlength=24)
    even = draw(np.arange(count) << 10)
    assert np.abs(even / count - exact).max() < 1 / count + 1e-3 * exact.max()
    drawn = draw(rng.integers(0, 1 << 24, count))
    chi_square = ((drawn - count * exact) ** 2 / (count * exact)).sum()
    assert chi_square < 23 + 4 * (2 * 23) ** 0.5


def test_extremes():
    logits = np.random.default_rng(0).normal(0, 2, (2, 37)).astype(np.float32)
    uniform = np.array([0, LARGEST])
    ranking = np.argsort(-logits, axis=1)
    assert sample(logits, uniform, 1.0, ALL, 1).tolist() == ranking[:, 0].tolist(), "a tiny top_p keeps the best only"
    assert sample(logits, uniform, 1.0, 37, CERTAIN).tolist() == [ranking[0, 0], ranking[1, -1]]
    assert sample(logits, uniform, 1000.0, 37, CERTAIN).tolist() == ranking[:, 0].tolist()
    assert sample(logits[:, :1], uniform, 1.0, ALL, 1).tolist() == [0, 0]
    far = np.array([[1e30, -1e30, 0], [-3e38, 3e38, 0]], np.float32)
    with np.errstate(over="ignore"):
        assert sample(far, uniform, 1.0, ALL, CERTAIN).tolist() == [0, 1]


def test_many_codes_do_not_overflow():
    """32768 equal codes of the largest weight: the code is the uniform's upper 15 bits."""
    uniform = np.array([0, 511, 512, 12345678, LARGEST])
    assert sample(np.zeros((5, 32768), np.float32), uniform, 1.0, ALL, CERTAIN).tolist() == (uniform >> 9).tolist()


def test_guidance():
    rng = np.random.default_rng(1)
    c, u = rng.normal(size=(2, 3, 37)).astype(np.float32)
    np.testing.assert_allclose(guided_logits(c, u, 3.0), u + 3.0 * (c.astype(np.float64) - u), rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(guided_logits(c, c, 1.0), c)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -1.0), ("temperature", float("nan")), ("temperature", 1e-40), ("top_k", -1), ("top_p", 0.0),
        ("top_p", 1.01), ("top_p", float("nan")), ("guidance", -0.5), ("guidance", float("inf")),
    ],
)  # fmt: skip
def test_settings_that_cannot_be_used(name, value):
    with pytest.raises(UsageError, match=f"^--{name.replace('_', '-')}: .*expected "):
        SamplingSettings(**{name: value})
