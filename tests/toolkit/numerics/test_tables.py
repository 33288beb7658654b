"""Function tables against decimal arithmetic and math."""

from __future__ import annotations

import hashlib
import math
from decimal import ROUND_HALF_EVEN, Decimal, localcontext

import numpy as np
import pytest

from fastcar.toolkit.numerics.tables import (
    ATTENTION_BITS,
    SAMPLE_BITS,
    exp2_table,
    phi_table,
    sigmoid_table,
    table_index,
)


def mantissa(bits: int, step: int) -> int:
    with localcontext() as context:
        context.prec = 40
        return int((Decimal(2) ** (bits - Decimal(step) / 1024)).to_integral_value(ROUND_HALF_EVEN))


@pytest.mark.parametrize("bits", [ATTENTION_BITS, SAMPLE_BITS])
def test_exp2_entries(bits):
    table = exp2_table(bits)
    assert table.dtype == np.int32 and table.size == 1024 * (bits + 1) + 1
    first = [mantissa(bits, step) for step in range(1024)]
    for index, entry in enumerate(table[:-1].tolist()):
        assert entry == first[index % 1024] >> (index // 1024)
    assert table[0] == 1 << bits and table[-1] == 0


@pytest.mark.parametrize("bits", [ATTENTION_BITS, SAMPLE_BITS])
def test_exp2_error(bits):
    error = [entry - math.pow(2, bits - index / 1024) for index, entry in enumerate(exp2_table(bits).tolist())]
    assert -1 <= min(error) and max(error) <= 0.5


def test_exp2_never_rises():
    assert (np.diff(exp2_table(SAMPLE_BITS)) <= 0).all(), "a larger logit must never get a smaller weight"


def test_sigmoid_error():
    """Half a unit of 2^-16, and what the sigmoid changes from the middle of 16 indices to their ends."""
    table = sigmoid_table()
    assert table.dtype == np.float32 and table.size == 65536
    x = (np.arange(65536) - 32768) / 2048
    exact = np.array([1 / (1 + math.exp(-value)) for value in x.tolist()])
    assert np.abs(table - exact).max() <= 2**-17 + 0.25 * 7.5 / 2048
    assert np.abs(table - exact).max() > 1e-5, "a table in steps of 16 indices cannot be this good"


def test_phi_error():
    """The same for Phi, whose slope is at most 0.4."""
    table = phi_table()
    assert table.dtype == np.float32 and table.size == 65536
    x = (np.arange(65536) - 32768) / 2048
    exact = np.array([math.erfc(-value / math.sqrt(2)) / 2 for value in x.tolist()])
    assert np.abs(table - exact).max() <= 2**-17 + 0.4 * 7.5 / 2048
    assert np.abs(table - exact).max() > 1e-5, "a table in steps of 16 indices cannot be this good"


def test_phi_does_not_depend_on_the_math_library():
    """No entry lies so near to the middle between two integers that another erf would round it the other way."""
    middle = (np.arange(8, 65536, 16) - 0.5 - 32768) / 2048
    exact = np.array([32768 * math.erfc(-x / math.sqrt(2)) for x in middle.tolist()])
    np.testing.assert_array_equal(phi_table()[::16] * 65536, np.minimum(np.rint(exact), 65535))
    changing = (exact > 0.25) & (exact < 65535)
    assert np.abs(exact - np.floor(exact) - 0.5)[changing].min() > 1e-6


def test_the_entries_are_pinned():
    """Never to change, or bundles give other videos."""
    digests = [hashlib.sha256(table().tobytes()).hexdigest()[:16] for table in (sigmoid_table, phi_table)]
    assert digests == ["b2562de095165dd3", "3727e05f3feb089a"]


def test_index():
    x = np.array([0, 0.5 / 2048, 1.5 / 2048, -0.5 / 2048, 15.9999, 16, -16, 1e9, -1e9, 1 / 2048], np.float32)
    assert table_index(x).tolist() == [32768, 32768, 32770, 32768, 65535, 65535, 0, 65535, 0, 32769]


@pytest.mark.parametrize("table", [sigmoid_table, phi_table])
def test_entries_are_integer_steps_of_16_indices(table):
    integers = table() * 65536
    assert (integers == np.rint(integers)).all() and integers.min() >= 0 and integers.max() == 65535
    assert (integers.reshape(4096, 16) == integers[::16, None]).all()
    assert (np.diff(integers) >= 0).all()


def test_table_softmax_is_near_the_exact_one():
    """No weight above that of the largest logit, and probabilities within 0.1 % of the mass."""
    rng = np.random.default_rng(0)
    table = exp2_table(SAMPLE_BITS).astype(np.float64)
    for _ in range(50):
        logits = rng.normal(0, 3, 512)
        steps = np.minimum((logits.max() - logits) * 1024 / math.log(2), table.size - 1).astype(int)
        approximate = table[steps] / table[steps].sum()
        exact = np.exp(logits) / np.exp(logits).sum()
        assert approximate[exact.argmax()] == approximate.max()
        assert np.abs(approximate - exact).sum() / 2 < 1e-3
