"""Scales of q, k, v and the TAS multipliers."""

from __future__ import annotations

import numpy as np
import pytest

from fastcar.export.quantize.head_scales import head_scales, value_scales
from fastcar.toolkit.numerics.attention import AttentionScales

CASES = {
    "alike": ([4.0, 3.0, 5.0, 4.5], [6.0, 7.0]),
    "far apart": ([40.0, 0.01, 5.0, 1.0], [0.3, 70.0]),
    "one head": ([2.0], [3.0]),
    "never active": ([0.0, 3.0], [2.0, 0.0]),
    "all silent": ([0.0, 0.0], [0.0]),
}


@pytest.mark.parametrize("case", CASES)
def test_relation_of_scales(case):
    q_peak, k_peak = (np.array(peak, np.float32) for peak in CASES[case])
    scales = head_scales(q_peak, k_peak)
    k_of_head = np.repeat(scales.k_scale.astype(np.float64), q_peak.size // k_peak.size)
    expected = (scales.tas_multiplier * scales.tas_scale / k_of_head).astype(np.float32)
    assert np.array_equal(scales.q_scale, expected)
    assert scales.tas_multiplier.dtype == np.int32
    assert 1 <= scales.tas_multiplier.min() and scales.tas_multiplier.max() == 127


@pytest.mark.parametrize("case", CASES)
def test_nothing_seen_in_calibration_is_clipped(case):
    q_peak, k_peak = (np.array(peak, np.float32) for peak in CASES[case])
    scales = head_scales(q_peak, k_peak)
    assert (np.rint(q_peak / scales.q_scale) <= 127).all()
    assert (np.rint(k_peak / scales.k_scale) <= 127).all()
    assert (np.rint(np.array([0.0, 3.0, 1e-9]) / value_scales(np.array([0.0, 3.0, 1e-9]))) <= 127).all()


def test_alike_heads_lose_little_resolution():
    scales = head_scales(np.array([4.0, 3.5, 5.0, 4.5], np.float32), np.array([6.0, 6.5], np.float32))
    assert (scales.q_scale * 127 / np.array([4.0, 3.5, 5.0, 4.5]) < 1.02).all()


@pytest.mark.parametrize("head_dim", [16, 256])
def test_the_smallest_scales_still_make_a_softmax(head_dim):
    scales = head_scales(np.array([1e-6, 1e-6], np.float32), np.array([1e-6], np.float32))
    value = value_scales(np.array([1e-6], np.float32))
    assert np.isfinite(AttentionScales.of(scales.q_scale, scales.k_scale, value, head_dim).exponent).all()
