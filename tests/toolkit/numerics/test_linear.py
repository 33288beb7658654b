"""Dynamic quantization and the integer linear layer against Python integers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from random_models import random_linear

from fastcar.toolkit.bundle.tensors import pack_int4, unpack_int4
from fastcar.toolkit.numerics.linear import QuantizedRows, exact_matmul, linear, quantize_rows
from fastcar.toolkit.numerics.weights import LinearWeights


def nearest(value: float) -> float:
    """binary32 nearest to a binary64 that holds one exact or correctly rounded operation on binary32."""
    return float(np.float32(value))


def quantized_in_python(row: list[float]) -> tuple[list[int], float]:
    scale = nearest(max(2.0**-40, *map(abs, row)) / 127)
    return [round(nearest(x / scale)) for x in row], scale  # round() is half to even


@pytest.mark.parametrize("size", [1e-30, 1e-3, 1.0, 7e4, 1e30, 3.4e38])
def test_quantize_rows(size):
    x = (np.random.default_rng(0).uniform(-1, 1, (5, 77)) * size).astype(np.float32)
    quantized = quantize_rows(x)
    assert quantized.values.dtype == np.int8 and quantized.scale.dtype == np.float32
    for row, values, scale in zip(x.tolist(), quantized.values.tolist(), quantized.scale.tolist(), strict=True):
        assert (values, scale[0]) == quantized_in_python(row)


def test_quantize_rows_ties_to_even():
    row = np.array([[127, 0.5, 1.5, 2.5, 126.5, -0.5, -1.5, -2.5, -126.5]], np.float32)
    quantized = quantize_rows(row)
    assert quantized.scale.item() == 1
    assert quantized.values.tolist() == [[127, 0, 2, 2, 126, 0, -2, -2, -126]]


def test_quantize_rows_zero_and_one_sided():
    x = np.zeros((3, 8), np.float32)
    x[1, 2], x[2, :] = -3e38, 1e-40
    quantized = quantize_rows(x)
    assert quantized.values[0].tolist() == [0] * 8 and quantized.values[2].tolist() == [0] * 8
    assert quantized.values[1].tolist() == [0, 0, -127, 0, 0, 0, 0, 0]
    assert (quantized.scale > 0).all() and np.isfinite(quantized.scale).all()


def test_each_row_has_its_own_scale():
    x = np.array([[1, 0.25], [1000, 250]], np.float32)
    assert quantize_rows(x).values.tolist() == [[127, 32], [127, 32]]


def expanded_in_python(weights: LinearWeights) -> list[list[int]]:
    values = weights.values.tolist()
    if weights.multiplier is None:
        return values
    group = len(values) // len(weights.multiplier)
    factor = weights.multiplier.tolist()
    return [[w * factor[i // group][o] for o, w in enumerate(row)] for i, row in enumerate(values)]


def linear_in_python(x: QuantizedRows, weights: LinearWeights) -> np.ndarray:
    matrix, scale = expanded_in_python(weights), weights.scale.tolist()
    result = []
    for row, row_scale in zip(x.values.tolist(), x.scale[:, 0].tolist(), strict=True):
        sums = [sum(a * w[o] for a, w in zip(row, matrix, strict=True)) for o in range(len(scale))]
        result.append([nearest(nearest(nearest(s) * scale[o]) * row_scale) for o, s in enumerate(sums)])
    return np.array(result, np.float32)


@pytest.mark.parametrize(("inputs", "group"), [(48, None), (48, 4), (52, 13), (52, 52), (51, 1)])
def test_linear(inputs, group):
    rng = np.random.default_rng(inputs)
    weights = random_linear(rng, inputs, 11, group)
    x = QuantizedRows(rng.integers(-127, 128, (3, inputs)).astype(np.int8), rng.random((3, 1)).astype(np.float32))
    y = linear(x, weights)
    assert y.dtype == np.float32
    np.testing.assert_array_equal(y, linear_in_python(x, weights))


@pytest.mark.parametrize("group", [None, 4])
def test_a_bias_is_added_last(group):
    """One rounding for the sum, after those of the two scales."""
    rng = np.random.default_rng(2)
    weights = random_linear(rng, 24, 11, group, bias=True)
    x = QuantizedRows(rng.integers(-127, 128, (3, 24)).astype(np.int8), rng.random((3, 1)).astype(np.float32))
    product = linear_in_python(x, replace(weights, bias=None)).astype(np.float64)
    expected = (product + weights.bias.astype(np.float64)).astype(np.float32)  # exact in binary64, then rounded once
    np.testing.assert_array_equal(linear(x, weights), expected)


@pytest.mark.parametrize("bias", [np.zeros(3, np.float32), np.zeros(2), np.zeros((1, 2), np.float32)])
def test_a_bias_of_another_form_is_refused(bias):
    with pytest.raises(ValueError, match=r"expected float32 \(2,\)"):
        LinearWeights(np.zeros((4, 2), np.int8), np.ones(2, np.float32), bias=bias)


@pytest.mark.parametrize("multiplier", [None, 18])
@pytest.mark.parametrize("signs", [(1, 1), (1, -1), (-1, -1)])
def test_linear_with_the_largest_operands(multiplier, signs):
    """Sums beyond 2^24 round to even once, when they become binary32."""
    inputs, largest = 4203, 127 if multiplier is None else 7
    factor = None if multiplier is None else np.full((3, 2), multiplier, np.uint8)
    values = np.full((inputs, 2), signs[1] * largest, np.int8)
    weights = LinearWeights(values, np.ones(2, np.float32), factor)
    x = QuantizedRows(np.full((1, inputs), signs[0] * 127, np.int8), np.ones((1, 1), np.float32))
    exact = signs[0] * signs[1] * 127 * largest * (multiplier or 1) * inputs
    assert exact != int(np.float32(exact)) and linear(x, weights).tolist() == [[nearest(exact)] * 2]


def test_four_bit_weights_fit_int8():
    values = np.array([[-7], [7], [-7], [7]], np.int8)
    weights = LinearWeights(values, np.ones(1, np.float32), np.full((2, 1), 18, np.uint8))
    assert weights.expanded().dtype == np.int8 and weights.expanded().ravel().tolist() == [-126, 126, -126, 126]
    assert weights.bit_width == 4 and weights.group_size == 2


def test_a_bias_is_added_last_and_rounded_once():
    """1 + 2^-24 and 1 + 3 2^-24 are ties: to 1 and to 1 + 2^-22."""
    bias = np.array([1, 1, -3, 0], np.float32)
    weights = LinearWeights(np.array([[1, 3, 3, 2]], np.int8), np.full(4, 2.0**-12, np.float32), bias=bias)
    x = QuantizedRows(np.array([[1]], np.int8), np.full((1, 1), 2.0**-12, np.float32))
    assert linear(x, weights).tolist() == [[1.0, 1 + 2.0**-22, -3 + 2.0**-22, 2.0**-23]]


@pytest.mark.parametrize("bias", [np.zeros(2), np.zeros(3, np.float32), np.zeros((1, 2), np.float32)])
def test_biases_of_wrong_type_or_shape(bias):
    with pytest.raises(ValueError, match=r"bias .*expected float32 \(2,\)"):
        LinearWeights(np.zeros((4, 2), np.int8), np.ones(2, np.float32), bias=bias)


def test_linear_does_not_depend_on_the_order_of_inputs():
    rng = np.random.default_rng(3)
    weights = random_linear(rng, 96, 20)
    x = QuantizedRows(rng.integers(-127, 128, (4, 96)).astype(np.int8), rng.random((4, 1)).astype(np.float32))
    order = rng.permutation(96)
    shuffled = linear(QuantizedRows(x.values[:, order], x.scale), LinearWeights(weights.values[order], weights.scale))
    np.testing.assert_array_equal(shuffled, linear(x, weights))


def test_exact_matmul_on_large_integers():
    a, b = np.array([[(1 << 26) - 1, -(1 << 26)]]), np.array([[(1 << 26) - 3], [1]])
    assert exact_matmul(a, b).item() == ((1 << 26) - 1) * ((1 << 26) - 3) - (1 << 26)


@pytest.mark.parametrize("shape", [(4, 6), (3, 5), (1, 1)])
def test_int4_packing(shape):
    """Two to a byte, the first in the low half; odd counts are padded."""
    values = np.random.default_rng(0).integers(-8, 8, shape).astype(np.int8)
    packed = pack_int4(values)
    flat = [*values.ravel().tolist(), 0]
    expected = [(flat[i] & 15) | (flat[i + 1] & 15) << 4 for i in range(0, values.size, 2)]
    assert packed.dtype == np.uint8 and packed.tolist() == expected
    np.testing.assert_array_equal(unpack_int4(packed, shape), values)


@pytest.mark.parametrize(
    ("values", "scale", "multiplier"),
    [
        (np.zeros((4, 2), np.int16), np.ones(2, np.float32), None),
        (np.zeros((4, 2), np.int8), np.ones(2), None),
        (np.zeros((4, 2), np.int8), np.ones(3, np.float32), None),
        (np.zeros((4, 2), np.int8), np.ones(2, np.float32), np.ones((3, 2), np.uint8)),
        (np.zeros((4, 2), np.int8), np.ones(2, np.float32), np.ones((2, 3), np.uint8)),
        (np.zeros((4, 2), np.int8), np.ones(2, np.float32), np.ones((2, 2), np.int8)),
    ],
)
def test_weights_of_wrong_type_or_shape(values, scale, multiplier):
    with pytest.raises(ValueError, match="expected"):
        LinearWeights(values, scale, multiplier)
