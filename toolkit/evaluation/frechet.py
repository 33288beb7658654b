"""How far generated clips are from real ones as a set: a Frechet distance on the tokenizer's own latents.

It is **not** the FVD of the literature (Unterthiner et al., arXiv 1812.01717), whose features are those of a network
trained on human actions; figures of the two cannot be compared. Here a sample is a pair of successive frames: the
latents of the later one, averaged over its cells, beside how much the cells' latents have changed since the earlier
one, likewise averaged. So the distance sees what frames are made of and how much they move from one to the next, and is
blind to where in a frame something is, whither it moves, and what takes more than two frames. (The change of the
average instead of the average change would be drowned by what the scenes show: of the clips that come with `car`,
shuffled frames were then at 2.5 times the distance between two sets of real clips; so they are at 50 times.)

With few samples it is too large, by about a constant over their number (Chong and Forsyth, arXiv 1911.07023), and the
pairs of a clip are not independent. So compare only sets of equally many clips and frames, and beside a figure give
that of two sets of real clips of that size: what cannot be told from it is no difference.
"""

from __future__ import annotations

import numpy as np

from ..errors import UsageError
from .codebook import Codebook

__all__ = ["clip_distance", "clip_features", "frechet_distance"]


def clip_distance(codebook: Codebook, reference: np.ndarray, codes: np.ndarray) -> float:
    """:func:`frechet_distance` of the :func:`clip_features` of two sets of clips; 0 for equal ones.

    ``reference`` (real ones, say), ``codes``: (clips, frames, cells[, D]) integers; the numbers of clips and of frames
    may differ.
    """
    return frechet_distance(clip_features(codebook, reference), clip_features(codebook, codes))


def clip_features(codebook: Codebook, codes: np.ndarray) -> np.ndarray:
    """codes (clips, frames, cells[, D]) -> (clips * (frames - 1), 2 * embedding) float64: of every frame but the first
    its latents' mean over the cells, then the mean over the cells of their absolute change since the frame before. In
    root mean squares of the codebook.

    UsageError for clips of a single frame, ValueError for codes that are not in the codebook.
    """
    if codes.shape[1] < 2:
        raise UsageError("Frechet distance", "clips of one frame", "at least 2, for motion", "Generate more frames.")
    latents = codebook.embed(codes)
    moved = np.abs(np.diff(latents, axis=1)).mean(axis=2)
    return np.concatenate([latents[:, 1:].mean(axis=2), moved], axis=2).reshape(-1, 2 * latents.shape[-1])


def frechet_distance(reference: np.ndarray, features: np.ndarray) -> float:
    """|m - m'|^2 + tr(C + C' - 2 (C C')^(1/2)) of the Gaussians with the means and covariances of two sets of samples.

    ``reference`` (samples, dimension), ``features`` (samples', dimension); in the features' unit squared, 0 for equal
    sets, in any order. Source: Dowson and Landau, "The Frechet distance between multivariate normal distributions",
    J. Multivariate Analysis 12(3), 1982; on features of generated pictures Heusel et al., NeurIPS 2017
    (arXiv 1706.08500), squared like here. The trace is that of (C^(1/2) C' C^(1/2))^(1/2), which is symmetric.

    UsageError for samples not more than the dimension, of which no covariance can be told; ValueError for sets of
    different dimensions, or numbers that are none.
    """
    (mean, covariance), (other_mean, other) = _gaussian(reference), _gaussian(features)
    if mean.shape != other_mean.shape:
        raise ValueError(f"features of {len(mean)} and {len(other_mean)} dimensions; expected as many")
    values, vectors = np.linalg.eigh(covariance)
    root = (vectors * np.sqrt(values.clip(min=0))) @ vectors.T
    inner = root @ other @ root
    shared = np.sqrt(np.linalg.eigvalsh((inner + inner.T) / 2).clip(min=0)).sum()
    apart = np.square(mean - other_mean).sum()
    return max(0.0, float(apart + np.trace(covariance) + np.trace(other) - 2 * shared))


def _gaussian(features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean (dimension,) and unbiased covariance (dimension, dimension) of samples."""
    features = np.asarray(features, np.float64)
    if features.ndim != 2 or not np.isfinite(features).all():
        raise ValueError(f"features of shape {features.shape}; expected (samples, dimension), all finite")
    samples, dimension = features.shape
    if samples <= dimension:
        found = f"{samples} samples of {dimension} dimensions"
        raise UsageError("Frechet distance", found, f"at least {dimension + 1}", "Take more clips, or longer ones.")
    mean = features.mean(axis=0)
    return mean, (features - mean).T @ (features - mean) / (samples - 1)
