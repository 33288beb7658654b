"""The packer's streams, read back the way the engine reads them."""

from __future__ import annotations

import numpy as np
import pytest

from fastcar.export.overlay.weights import LinearPlan, interleave_gate_up, pack_linear, pack_words
from fastcar.toolkit.errors import UsageError
from fastcar.toolkit.numerics.weights import LinearWeights

SHAPES = [(16, 8), (32, 32), (48, 40), (100, 48), (256, 64), (160, 9), (96, 33), (704, 256)]


def random_linear(inputs: int, outputs: int, int4: bool, group: int = 32, bias: bool = False) -> LinearWeights:
    random = np.random.default_rng([inputs, outputs, int4])
    scale = random.uniform(0.001, 0.1, outputs).astype(np.float32)
    added = random.normal(0, 1, outputs).astype(np.float32) if bias else None
    if not int4:
        return LinearWeights(random.integers(-127, 128, (inputs, outputs)).astype(np.int8), scale, bias=added)
    values = random.integers(-7, 8, (inputs, outputs)).astype(np.int8)
    return LinearWeights(values, scale, random.integers(1, 19, (inputs // group, outputs)).astype(np.uint8), added)


def read_back(
    streams: np.ndarray, inputs: int, outputs: int, int4: bool, bias: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Expanded weights (inputs, outputs), scales and biases, by walking each port's beats one by one."""
    lanes = 32 if int4 else 16
    chunks = -(-inputs // lanes)
    weights = np.zeros((chunks * lanes, -(-outputs // 8) * 8), np.int64)
    scales, biases = np.zeros((2, weights.shape[1]), np.float32)
    for port in range(4):
        beats = iter(streams[port])
        for tile in range(-(-outputs // 32)):
            width = min(8, -(-(outputs - 32 * tile) // 8) * 2)
            first = 32 * tile + port * width
            for kept in (scales, biases) if bias else (scales,):
                words = np.concatenate([next(beats), next(beats)]).view(np.float32)
                kept[first : first + width] = words[:width]
                assert not words[width:].any()
            for chunk in range(chunks):
                if int4 and chunk % 2 == 0:
                    factors = next(beats)
                for output in range(width):
                    beat = next(beats)
                    rows = slice(chunk * lanes, (chunk + 1) * lanes)
                    if int4:
                        nibbles = np.stack([beat & 15, beat >> 4], axis=1).reshape(-1).astype(np.int64)
                        signed = np.where(nibbles > 7, nibbles - 16, nibbles)
                        weights[rows, first + output] = signed * factors[chunk % 2 * 8 + output]
                    else:
                        weights[rows, first + output] = beat.view(np.int8)
        assert next(beats, None) is None
    return weights, scales, biases


def check_stream(linear: LinearWeights) -> None:
    (inputs, outputs), int4, bias = linear.values.shape, linear.multiplier is not None, linear.bias is not None
    streams = pack_linear(linear)
    assert streams.shape == (4, LinearPlan(inputs, outputs, int4, bias).port_beats, 16)
    weights, scales, biases = read_back(streams, inputs, outputs, int4, bias)
    assert np.array_equal(weights[:inputs, :outputs], linear.expanded())
    assert not weights[inputs:].any() and not weights[:, outputs:].any()
    assert np.array_equal(scales[:outputs], linear.scale) and not scales[outputs:].any()
    assert not bias or np.array_equal(biases[:outputs], linear.bias)
    assert not biases[outputs:].any()


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("inputs, outputs", SHAPES)
def test_int8_stream(inputs: int, outputs: int, bias: bool) -> None:
    check_stream(random_linear(inputs, outputs, int4=False, bias=bias))


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("inputs, outputs", [shape for shape in SHAPES if shape[0] % 32 == 0])
@pytest.mark.parametrize("group", [32, 96])
def test_int4_stream(inputs: int, outputs: int, group: int, bias: bool) -> None:
    if inputs % group:
        group = 32
    check_stream(random_linear(inputs, outputs, int4=True, group=group, bias=bias))


def test_a_group_that_is_no_beat_is_refused() -> None:
    with pytest.raises(UsageError, match="groups of 16; expected a multiple of 32"):
        pack_linear(random_linear(64, 32, int4=True, group=16))


def test_large_matrices_have_no_padding_and_long_bursts() -> None:
    """Of the 1.1 B shape: a port reads thousands of beats in sequence, none of them empty."""
    for inputs, outputs in ((2048, 2560), (2048, 2048), (2048, 11264), (5632, 2048)):
        plan = LinearPlan(inputs, outputs, True)
        payload = inputs * outputs // 2 + inputs * outputs // 32 + 4 * outputs
        assert plan.port_beats >= 256
        assert 4 * plan.port_beats * 16 == payload


def test_words_are_dealt_to_the_ports_beat_by_beat() -> None:
    words = np.arange(1, 38, dtype=np.uint32)
    streams = pack_words(words)
    assert streams.shape == (4, 3, 16)
    dealt = streams.transpose(1, 0, 2).reshape(-1).view(np.uint32)
    assert np.array_equal(dealt[:37], words) and not dealt[37:].any()


def test_gate_and_up_alternate() -> None:
    linear = random_linear(64, 48, int4=True, bias=True)
    mixed = interleave_gate_up(linear)
    assert np.array_equal(mixed.expanded()[:, 0::2], linear.expanded()[:, :24])
    assert np.array_equal(mixed.expanded()[:, 1::2], linear.expanded()[:, 24:])
    assert np.array_equal(mixed.scale[1::2], linear.scale[24:])
    assert np.array_equal(mixed.bias[0::2], linear.bias[:24]) and np.array_equal(mixed.bias[1::2], linear.bias[24:])
