"""How far two videos, or two sets of codes, are apart. Every function names its unit and its source."""

from __future__ import annotations

import numpy as np

__all__ = [
    "check_videos",
    "code_agreement",
    "code_agreement_per_frame",
    "flicker",
    "psnr",
    "psnr_per_frame",
    "ssim_per_frame",
]

PEAK = 255.0  # of uint8 samples
WINDOW = 11  # pixels; the Gaussian window of Wang et al.: sigma 1.5, cut off at 3.5 sigma


def psnr(reference: np.ndarray, video: np.ndarray) -> float:
    """Peak signal-to-noise ratio of a whole clip in dB: 10 log10(255^2 / MSE), the MSE over all its samples.

    ``reference``, ``video``: (frames, height, width, 3) uint8 RGB. The MSE is pooled before the logarithm, so frames
    that are identical (and infinite by themselves) count as what they are; identical clips give inf. ValueError when
    the shapes differ or the type is not uint8. Source: ITU-T J.340, as applied to RGB.
    """
    return _decibel(float(_squared_error(reference, video).mean()))


def psnr_per_frame(reference: np.ndarray, video: np.ndarray) -> np.ndarray:
    """:func:`psnr` of every frame by itself in dB: (frames,) float64, inf where a frame is identical."""
    return np.array([_decibel(error) for error in _squared_error(reference, video)])


def ssim_per_frame(reference: np.ndarray, video: np.ndarray) -> np.ndarray:
    """Structural similarity of every frame, no unit, at most 1 (identical): (frames,) float64.

    ``reference``, ``video``: (frames, height, width, 3) uint8 RGB. The mean over pixels and colour channels of the
    index of Wang, Bovik, Sheikh and Simoncelli, "Image quality assessment: from error visibility to structural
    similarity", IEEE TIP 13(4), 2004, with their Gaussian window (11 x 11, sigma 1.5), K1 = 0.01, K2 = 0.03; computed
    by scikit-image. ValueError when shapes differ, the type is not uint8, or a side is shorter than the window.
    """
    check_videos(reference, video)
    if min(reference.shape[1:3]) < WINDOW:
        size = " x ".join(map(str, reference.shape[1:3]))
        raise ValueError(f"ssim: frames of {size} pixels; expected at least {WINDOW} x {WINDOW}, the window")
    from skimage.metrics import structural_similarity  # its import takes a second

    options = {"channel_axis": 2, "data_range": PEAK, "gaussian_weights": True, "use_sample_covariance": False}
    return np.array([structural_similarity(a, b, **options) for a, b in zip(reference, video, strict=True)])


def code_agreement(reference: np.ndarray, codes: np.ndarray) -> float:
    """Fraction (0 .. 1) of codes that are equal, over arrays of integers of any one shape, say (frames, places).

    ValueError when the shapes differ or nothing is in them. Defined here; no outside source.
    """
    if reference.shape != codes.shape or codes.size == 0:
        raise ValueError(f"codes: shapes {reference.shape} and {codes.shape}; expected two equal, non-empty ones")
    return float(np.mean(reference == codes))


def code_agreement_per_frame(reference: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """:func:`code_agreement` of every frame by itself: codes (..., frames, places) -> (..., frames) float64.

    Of clips of the same prompt and draws, its fall over the frames is how fast a run drifts from its reference. Codes
    of a depth transformer have their depths among the places. ValueError as there.
    """
    if reference.shape != codes.shape or codes.ndim < 2 or codes.size == 0:
        raise ValueError(f"codes: shapes {reference.shape} and {codes.shape}; expected two of (..., frames, places)")
    return (reference == codes).mean(axis=-1)


def flicker(video: np.ndarray) -> float:
    """Mean absolute difference of successive frames, in levels of 255, over all samples: 0 is a still picture.

    ``video``: (frames, height, width, 3) uint8 RGB; NaN for a single frame. It contains true motion, so compare it
    only between clips of the same scene. The temporal flickering of VBench (Huang et al., CVPR 2024) is
    (255 - flicker) / 255.
    """
    check_videos(video, video)
    if len(video) < 2:
        return float("nan")
    return float(np.abs(np.diff(video.astype(np.int16), axis=0)).mean())


def _squared_error(reference: np.ndarray, video: np.ndarray) -> np.ndarray:
    """Mean squared error of every frame: (frames,) float64, exact before the division."""
    check_videos(reference, video)
    difference = reference.astype(np.int32) - video
    return (difference * difference).reshape(len(video), -1).mean(axis=1, dtype=np.float64)


def _decibel(mean_squared_error: float) -> float:
    return 10 * float(np.log10(PEAK**2 / mean_squared_error)) if mean_squared_error else float("inf")


def check_videos(reference: np.ndarray, video: np.ndarray) -> None:
    """ValueError unless both are uint8 RGB of one shape (frames, height, width, 3)."""
    if reference.shape != video.shape or video.ndim != 4 or video.shape[3] != 3 or video.size == 0:
        found = f"videos of shapes {reference.shape} and {video.shape}"
        raise ValueError(f"{found}; expected two of (frames, height, width, 3), not empty")
    if reference.dtype != np.uint8 or video.dtype != np.uint8:
        raise ValueError(f"videos of types {reference.dtype} and {video.dtype}; expected uint8 RGB")
