"""Function tables on integer indices: the only way exp, sigmoid and the normal distribution enter the arithmetic.

``floor`` picks the index for exp: every entry is then too large by the same expected factor, which cancels in a
softmax. Tables are integers, so they are the same on every machine whatever its math library.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np

__all__ = [
    "ATTENTION_BITS",
    "EXP_FRACTION_BITS",
    "SAMPLE_BITS",
    "SIGMOID_SHIFT",
    "SIGMOID_STEPS",
    "exp2_table",
    "phi_table",
    "sigmoid_table",
    "table_index",
]

EXP_FRACTION_BITS = 10  # index step of 2^-10 in log2: an entry is within 0.07 % of the function
ATTENTION_BITS = 15  # probabilities up to 2^15: a high and a low byte, each a uint8 operand of p.V
SAMPLE_BITS = 24  # weights up to 2^24: 32768 codes x 24-bit uniforms stay below 2^63
SIGMOID_STEPS = 2048  # index steps per unit: a 16-bit index spans +-16, where sigmoid and Phi are 0 or 1 to 2^-23
SIGMOID_SHIFT = 4  # index bits below the 4096 entries a kernel holds


@cache
def exp2_table(bits: int) -> np.ndarray:
    """Entry t = round(2^bits * 2^-(t mod 2^10 / 2^10)) >> (t div 2^10), int32, up to the first entry that is 0.

    A kernel holds the first 2^10 entries and shifts; ``t`` is -log2 of the weight with 10 fractional bits.
    """
    steps = 1 << EXP_FRACTION_BITS
    mantissa = np.rint(2.0**bits * 2.0 ** (-np.arange(steps) / steps)).astype(np.int64)
    shifted = [mantissa >> shift for shift in range(bits + 1)]
    return np.concatenate([*shifted, np.zeros(1, np.int64)]).astype(np.int32)


@cache
def sigmoid_table() -> np.ndarray:
    """sigmoid in units of 2^-16 by 16-bit index 32768 + 2048 x, as float32 (65536,): entry * 2^-16 is exact.

    A kernel holds round(2^16 * sigmoid) at the middle of every 16 indices, 4096 integers up to 65535.
    """
    return _by_index(65536.0 / (1.0 + np.exp(-_middles())))


@cache
def phi_table() -> np.ndarray:
    """Phi(x) = (1 + erf(x / sqrt(2))) / 2, the normal distribution function, in the form of ``sigmoid_table``."""
    return _by_index(np.array([32768.0 * (1.0 + math.erf(x / math.sqrt(2.0))) for x in _middles().tolist()]))


def table_index(x: np.ndarray) -> np.ndarray:
    """float32 -> index of ``sigmoid_table`` and ``phi_table``: clip(round(2048 x) + 32768, 0, 65535) int32."""
    return np.clip(np.rint(x * np.float32(SIGMOID_STEPS)) + 32768, 0, 65535).astype(np.int32)


def _middles() -> np.ndarray:
    """x (4096,) at the middle of every 16 indices."""
    middle = np.arange(0, 65536, 1 << SIGMOID_SHIFT) + ((1 << SIGMOID_SHIFT) - 1) / 2
    return (middle - 32768) / SIGMOID_STEPS


def _by_index(entries: np.ndarray) -> np.ndarray:
    """Values (4096,) in units of 2^-16, rounded, as float32 of each of the 65536 indices."""
    rounded = np.minimum(np.rint(entries), 65535) / 65536
    return np.repeat(rounded.astype(np.float32), 1 << SIGMOID_SHIFT)
