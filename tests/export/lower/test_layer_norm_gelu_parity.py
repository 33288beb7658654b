"""LayerNorm and GELU, which no model calls yet, run alone by onnxruntime: the bits of their NumPy counterparts."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from difficult_inputs import difficult_rows, quantized_outputs
from onnx_functions import assert_function, emitted

from fastcar.export.lower.gelu import gelu as emit_gelu
from fastcar.export.lower.layer_norm import layer_norm as emit_layer_norm
from fastcar.toolkit.numerics.gelu import gelu
from fastcar.toolkit.numerics.layer_norm import layer_norm
from fastcar.toolkit.numerics.tables import phi_table

ROWS = (1, 2, 3, 10)
WIDTHS = (1, 7, 48, 52, 128, 1000)


def check_layer_norm(x: np.ndarray, gain: np.ndarray, bias: np.ndarray, eps: float) -> None:
    emit = partial(emit_layer_norm, eps=eps, hidden=x.shape[1])
    function = emitted("LayerNorm", emit, ["x", "gain", "bias"], ["values", "scale"])
    with np.errstate(over="ignore"):  # of a huge row, eps / step^2 is rightly 0
        expected = quantized_outputs(layer_norm(x, gain, bias, eps))
    assert_function(function, {"x": x, "gain": gain, "bias": bias}, expected)


def check_gelu(x: np.ndarray) -> None:
    function = emitted("GELU", partial(emit_gelu, width=x.shape[1]), ["x", "table"], ["y"])
    with np.errstate(over="ignore"):
        expected = gelu(x)
    assert_function(function, {"x": x, "table": phi_table()}, {"y": expected})


@pytest.mark.parametrize("eps", [1e-5, 1e-6, 2.0**-12])
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("hidden", WIDTHS)
def test_layer_norm(hidden, rows, eps):
    rng = np.random.default_rng(rows)
    x = difficult_rows(rng, rows, hidden) + np.float32(0.3) * (np.arange(rows) % 2)[:, None].astype(np.float32)
    gain, bias = rng.uniform(-2, 2, (2, hidden)).astype(np.float32)
    check_layer_norm(x, gain, bias, eps)


@pytest.mark.parametrize("hidden", [2, 4096, 32768])
def test_layer_norm_with_the_largest_sums(hidden):
    """All of one sign, half of each, one against the rest: sum, squares and their difference as large as they get."""
    x = np.ones((4, hidden), np.float32)
    x[1, ::2], x[2, 0], x[3, -1] = -1, -1, 1 - 2**-15
    rng = np.random.default_rng(hidden)
    gain, bias = rng.uniform(-2, 2, (2, hidden)).astype(np.float32)
    check_layer_norm(x, gain, bias, 1e-5)


@pytest.mark.parametrize("value", [0, 1e-30, 1e-12, 1e-3, 3, 1e25, 3e38])
def test_layer_norm_of_equal_values(value):
    """Only the bias is left, and where that is zero too, zeros."""
    x = np.full((2, 48), value, np.float32)
    x[1] *= -1
    check_layer_norm(x, np.ones(48, np.float32), np.linspace(-1, 1, 48, dtype=np.float32), 1e-5)
    check_layer_norm(x, np.ones(48, np.float32), np.zeros(48, np.float32), 1e-5)


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("width", WIDTHS)
def test_gelu(width, rows):
    check_gelu(3 * difficult_rows(np.random.default_rng(rows), rows, width))


def test_gelu_at_every_index_and_between():
    """Where the index changes: on the middle between two indices, and one rounding above and below it."""
    ties = ((np.arange(65538) - 32769.5) / 2048).astype(np.float32)
    check_gelu(np.stack([ties, np.nextafter(ties, np.float32(-99)), np.nextafter(ties, np.float32(99))]))
    check_gelu(((np.arange(65536) - 32768) / 2048).astype(np.float32)[None])


def test_gelu_of_extremes():
    check_gelu(np.array([[0.0, -0.0, 1e-40, -1e-40, 16, -16, 1e9, -1e9, 3e38, -3e38]], np.float32))
