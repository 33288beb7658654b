"""Rotary position embedding on binary32 pairs."""

from __future__ import annotations

import math

import numpy as np

from ..config import BackboneConfig, RopeScaling

__all__ = ["inverse_frequencies", "rotary_tables", "rotate"]


def rotary_tables(config: BackboneConfig, positions: int) -> tuple[np.ndarray, np.ndarray]:
    """(positions, head_dim) float32 cosines and signed sines: the sine's first half carries the minus sign.

    Angle of pair i at position p: p * theta^(-2i / head_dim) (arXiv 2104.09864, eq. 15), scaled where the model says
    so, halves split as in Hugging Face checkpoints. A bundle stores the tables: no machine's cosine decides a bit of
    the result.
    """
    frequencies, factor = inverse_frequencies(config)
    angle = np.outer(np.arange(positions, dtype=np.float64), frequencies)
    cos, sin = factor * np.cos(angle), factor * np.sin(angle)
    return (
        np.concatenate([cos, cos], axis=1).astype(np.float32),
        np.concatenate([-sin, sin], axis=1).astype(np.float32),
    )


def inverse_frequencies(config: BackboneConfig) -> tuple[np.ndarray, float]:
    """Radians a position of each pair (head_dim / 2,) float64, and what cosines and sines are multiplied by."""
    exponent = np.arange(0, config.head_dim, 2, dtype=np.float64) / config.head_dim
    frequencies, scaling = config.rope_theta**-exponent, config.rope_scaling
    if scaling is None:
        return frequencies, 1.0
    if scaling.type == "linear":
        return frequencies / scaling.factor, 1.0
    if scaling.type == "llama3":
        return _llama3(frequencies, scaling), 1.0
    factor = 0.1 * math.log(scaling.factor) + 1 if scaling.attention_factor is None else scaling.attention_factor
    return _yarn(frequencies, scaling, config), factor


def _llama3(frequencies: np.ndarray, scaling: RopeScaling) -> np.ndarray:
    """As many waves as fit into the original context: below ``low_freq_factor`` stretched, above ``high`` kept."""
    waves = scaling.original_positions * frequencies / (2 * math.pi)
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    kept = np.clip((waves - low) / (high - low), 0, 1)
    return frequencies * (kept + (1 - kept) / scaling.factor)


def _yarn(frequencies: np.ndarray, scaling: RopeScaling, config: BackboneConfig) -> np.ndarray:
    """Kept where a pair turns more than ``beta_fast`` times in the original context, stretched below ``beta_slow``."""

    def pair_of(turns: float) -> float:
        waves = scaling.original_positions / (turns * 2 * math.pi)
        return config.head_dim * math.log(waves) / (2 * math.log(config.rope_theta))

    low = max(math.floor(pair_of(scaling.beta_fast)), 0)
    high = min(math.ceil(pair_of(scaling.beta_slow)), config.head_dim - 1)
    stretched = np.clip((np.arange(len(frequencies)) - low) / max(high - low, 1e-3), 0, 1)
    return frequencies * (1 - stretched + stretched / scaling.factor)


def rotate(x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    """x (rows, heads, head_dim), cos and sin (rows, head_dim) of each row's position -> x turned."""
    low, high = np.split(x, 2, axis=-1)
    swapped = np.concatenate([high, low], axis=-1)
    return x * cos[:, None] + swapped * sin[:, None]
