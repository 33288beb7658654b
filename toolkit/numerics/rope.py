"""Rotary position embedding on binary32 pairs."""

from __future__ import annotations

import numpy as np

from ..config import BackboneConfig

__all__ = ["rotary_tables", "rotate"]


def rotary_tables(config: BackboneConfig, positions: int) -> tuple[np.ndarray, np.ndarray]:
    """(positions, head_dim) float32 cosines and signed sines: the sine's first half carries the minus sign.

    Angle of pair i at position p: p * theta^(-2i / head_dim) (arXiv 2104.09864, eq. 15), halves split as in
    Hugging Face checkpoints. A bundle stores the tables: no machine's cosine decides a bit of the result.
    """
    exponent = np.arange(0, config.head_dim, 2, dtype=np.float64) / config.head_dim
    angle = np.outer(np.arange(positions, dtype=np.float64), config.rope_theta**-exponent)
    cos, sin = np.cos(angle), np.sin(angle)
    return (
        np.concatenate([cos, cos], axis=1).astype(np.float32),
        np.concatenate([-sin, sin], axis=1).astype(np.float32),
    )


def rotate(x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    """x (rows, heads, head_dim), cos and sin (rows, head_dim) of each row's position -> x turned."""
    low, high = np.split(x, 2, axis=-1)
    swapped = np.concatenate([high, low], axis=-1)
    return x * cos[:, None] + swapped * sin[:, None]
