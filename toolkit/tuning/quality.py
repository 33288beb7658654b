"""What a user can ask of the clips that replay makes, and how far they are from the dense ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..evaluation.metrics import WINDOW, code_agreement, psnr, ssim_per_frame

__all__ = ["TARGETS", "Quality", "Target", "compare", "mean_quality"]


@dataclass(frozen=True)
class Quality:
    """Of clips against the dense ones of the same prompts and seeds, means: ``psnr`` in dB, at most 100; ``ssim``
    without unit, NaN for pictures smaller than its window; ``agreement``: share of equal codes; ``divergence`` in nats
    a code, of predictions along the dense clips; ``ratio``: replayed of eligible."""

    psnr: float
    ssim: float
    agreement: float
    divergence: float
    ratio: float


@dataclass(frozen=True)
class Target:
    """``value`` that ``field`` of a quality has to reach: at least, or at most where ``sign`` is -1."""

    field: str
    value: float

    @property
    def sign(self) -> int:
        return -1 if self.field == "divergence" else 1

    def met(self, quality: Quality) -> bool:
        return self.sign * getattr(quality, self.field) >= self.sign * self.value


TARGETS = {
    "min_psnr": ("psnr", 0.0, 100.0, "dB, above 0 and below 100"),
    "min_ssim": ("ssim", 0.0, 1.0, "above 0 and below 1"),
    "min_agreement": ("agreement", 0.0, 1.0, "a share of codes, above 0 and below 1"),
    "max_divergence": ("divergence", 0.0, float("inf"), "nats a code, above 0"),
}
"""By option: the field, and the open interval that its value lies in."""

IDENTICAL = 100.0  # dB, of clips without a difference


def compare(dense: tuple[np.ndarray, np.ndarray], other: tuple[np.ndarray, np.ndarray]) -> tuple[float, float, float]:
    """PSNR, SSIM and agreement of one clip: codes, and frames (frames, height, width, 3) uint8."""
    wide = min(dense[1].shape[1:3]) >= WINDOW
    ssim = float(np.mean(ssim_per_frame(dense[1], other[1]))) if wide else float("nan")
    return min(psnr(dense[1], other[1]), IDENTICAL), ssim, code_agreement(dense[0], other[0])


def mean_quality(compared: Sequence[tuple[float, float, float]], ratios: Sequence[float], divergence: float) -> Quality:
    """Of several clips."""
    return Quality(*np.mean(compared, axis=0).tolist(), divergence, float(np.mean(ratios)))
