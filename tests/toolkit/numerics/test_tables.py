"""Function tables against decimal arithmetic and math."""

from __future__ import annotations

import math
from decimal import ROUND_HALF_EVEN, Decimal, localcontext

import numpy as np
import pytest

from fastcar.toolkit.numerics.tables import ATTENTION_BITS, SAMPLE_BITS, exp2_table, sigmoid_table


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


def test_sigmoid_is_integer_steps_of_16_indices():
    integers = sigmoid_table() * 65536
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
