"""Metrics against their formulas by hand and against scikit-image."""

from __future__ import annotations

import math

import numpy as np
import pytest
from skimage.metrics import peak_signal_noise_ratio

from fastcar.toolkit.evaluation.metrics import (
    code_agreement,
    code_agreement_per_frame,
    flicker,
    psnr,
    psnr_per_frame,
    ssim_per_frame,
)

RANDOM = np.random.default_rng(0)
CLIP = RANDOM.integers(0, 256, (3, 24, 20, 3), dtype=np.uint8)
NOISY = (CLIP + RANDOM.normal(0, 12, CLIP.shape)).clip(0, 255).astype(np.uint8)


def test_psnr_is_that_of_scikit_image():
    frames = [peak_signal_noise_ratio(a, b, data_range=255) for a, b in zip(CLIP, NOISY, strict=True)]
    assert psnr_per_frame(CLIP, NOISY) == pytest.approx(frames, rel=1e-12)
    assert psnr(CLIP, NOISY) == pytest.approx(peak_signal_noise_ratio(CLIP, NOISY, data_range=255), rel=1e-12)


def test_psnr_by_hand():
    black = np.zeros((2, 2, 2, 3), np.uint8)
    assert psnr(black, black + 1) == pytest.approx(48.1308, abs=1e-4)  # 20 log10 255
    assert psnr(black, black + 255) == pytest.approx(0, abs=1e-12)
    half = black.copy()
    half[1] = 255
    assert psnr_per_frame(black, half).tolist() == pytest.approx([math.inf, 0])
    assert psnr(black, half) == pytest.approx(10 * math.log10(2))
    assert psnr(black, black) == math.inf


def test_ssim_is_the_formula_of_its_paper():
    """On 11 x 11 pixels exactly one window fits: one weighted mean, variance and covariance a channel."""
    reference, video = CLIP[:, :11, :11] // 24, NOISY[:, :11, :11] // 24  # dim, so that K1 and K2 weigh
    offset = np.arange(-5, 6)
    window = np.exp(-(offset[:, None] ** 2 + offset**2) / (2 * 1.5**2))
    window = (window / window.sum())[None, :, :, None]

    def mean(values: np.ndarray) -> np.ndarray:
        return (values * window).sum(axis=(1, 2))

    x, y = reference.astype(float), video.astype(float)
    c1, c2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2
    covariance = mean(x * y) - mean(x) * mean(y)
    variances = mean(x * x) - mean(x) ** 2 + mean(y * y) - mean(y) ** 2
    index = (2 * mean(x) * mean(y) + c1) * (2 * covariance + c2)
    index /= (mean(x) ** 2 + mean(y) ** 2 + c1) * (variances + c2)
    assert ssim_per_frame(reference, video) == pytest.approx(index.mean(axis=1), abs=1e-6)


def test_ssim_of_identical_frames_is_one_and_falls_with_noise():
    assert ssim_per_frame(CLIP, CLIP) == pytest.approx(np.ones(3))
    assert (ssim_per_frame(CLIP, NOISY) < 0.999).all()


def test_ssim_needs_its_window():
    with pytest.raises(ValueError, match="10 x 24"):
        ssim_per_frame(np.zeros((1, 10, 24, 3), np.uint8), np.zeros((1, 10, 24, 3), np.uint8))


def test_code_agreement_is_a_fraction():
    codes = np.arange(12).reshape(3, 4)
    other = codes.copy()
    other[1] = -1
    assert code_agreement(codes, other) == pytest.approx(8 / 12)
    assert code_agreement(codes, codes) == 1
    with pytest.raises(ValueError, match="codes"):
        code_agreement(codes, codes[:2])


def test_code_agreement_of_every_frame():
    codes = RANDOM.integers(0, 3, (2, 3, 5))
    other = codes.copy()
    other[0, 1, :2], other[1, 2] = -1, -1
    assert code_agreement_per_frame(codes, other).tolist() == [[1, 0.6, 1], [1, 1, 0]]
    assert code_agreement_per_frame(codes, other).mean() == pytest.approx(code_agreement(codes, other))
    for wrong in (codes[:1], codes[..., :4], codes[0, 0]):
        with pytest.raises(ValueError, match="codes"):
            code_agreement_per_frame(codes, wrong)
    with pytest.raises(ValueError, match="frames, places"):
        code_agreement_per_frame(codes[0, 0], codes[0, 0])


def test_flicker_by_hand():
    clip = np.zeros((3, 2, 2, 3), np.uint8)
    clip[1] = 200  # up by 200, down by 200: an unsigned difference would wrap
    assert flicker(clip) == 200
    assert flicker(clip[:2]) == 200 and flicker(np.repeat(clip[:1], 4, axis=0)) == 0
    assert math.isnan(flicker(clip[:1]))


@pytest.mark.parametrize("measure", [psnr, psnr_per_frame, ssim_per_frame])
@pytest.mark.parametrize("other", [CLIP[:2], CLIP.astype(np.float32), CLIP[..., :2], CLIP[0]])
def test_arrays_that_do_not_fit_are_refused(measure, other):
    with pytest.raises(ValueError, match="videos of"):
        measure(CLIP, other)
