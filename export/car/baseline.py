"""What copying the previous frame achieves: the baseline that the backbone has to beat."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["CopyBaseline", "fit_copy_baseline"]


@dataclass(frozen=True)
class CopyBaseline:
    """``bigram`` (codes, codes): log p(code | code at the same place one frame earlier).

    ``first`` (cells, codes): log p of a code of frame 0 at each place.
    """

    bigram: np.ndarray
    first: np.ndarray

    def losses(self, codes: np.ndarray) -> np.ndarray:
        """codes (clips, frames, cells) -> -log p (clips, frames, cells) in nats."""
        later = self.bigram[codes[:, :-1], codes[:, 1:]]
        first = self.first[np.arange(codes.shape[2]), codes[:, 0]]
        return -np.concatenate([first[:, None], later], 1)


def fit_copy_baseline(codes: np.ndarray, number: int, smoothing: tuple[float, float] = (32.0, 128.0)) -> CopyBaseline:
    """codes (clips, frames, cells) -> the baseline over ``number`` codes.

    Counts are smoothed with ``smoothing`` (bigram, first) pseudo-counts spread like the overall frequency of the codes.
    """
    frequency = np.bincount(codes.ravel(), minlength=number) + 1.0
    frequency /= frequency.sum()
    pair = codes[:, :-1].astype(np.int64) * number + codes[:, 1:]
    bigram = np.bincount(pair.ravel(), minlength=number * number).reshape(number, number)
    place = np.arange(codes.shape[2]) * number + codes[:, 0]
    first = np.bincount(place.ravel(), minlength=codes.shape[2] * number).reshape(-1, number)
    return CopyBaseline(_smooth(bigram, frequency, smoothing[0]), _smooth(first, frequency, smoothing[1]))


def _smooth(counts: np.ndarray, frequency: np.ndarray, amount: float) -> np.ndarray:
    smoothed = counts + amount * frequency
    return np.log(smoothed / smoothed.sum(1, keepdims=True)).astype(np.float32)
