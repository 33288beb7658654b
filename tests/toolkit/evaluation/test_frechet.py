"""The Frechet distance against closed forms and SciPy's matrix root, and on the clips that come with `car`."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from depth_bundle import depth_bundle
from scipy.linalg import sqrtm
from vqgan_like import random_vqgan

import fastcar.export.car as car
from fastcar.export.car.checkpoint import load_checkpoint, load_clips
from fastcar.export.decoder import quantize_decoder, write_decoder
from fastcar.toolkit.bundle.bundle import DECODER, Bundle
from fastcar.toolkit.errors import BundleError, UsageError
from fastcar.toolkit.evaluation.codebook import Codebook, read_codebook
from fastcar.toolkit.evaluation.frechet import clip_distance, clip_features, frechet_distance

CHECKPOINT = Path(car.__file__).parent / "checkpoint"
RANDOM = np.random.default_rng(0)


def whitened(samples: int, dimension: int) -> np.ndarray:
    """Samples whose mean is 0 and whose covariance is the identity, exactly but for rounding."""
    x = RANDOM.normal(size=(samples, dimension))
    x -= x.mean(axis=0)
    return x @ np.linalg.inv(np.linalg.cholesky(np.cov(x.T))).T


def test_equal_sets_are_at_distance_zero_in_any_order():
    x = RANDOM.normal(size=(50, 7)) * np.arange(1, 8)
    assert frechet_distance(x, x) == pytest.approx(0, abs=1e-10)
    assert frechet_distance(x, RANDOM.permutation(x)) == pytest.approx(0, abs=1e-10)


def test_gaussians_along_the_same_axes():
    """|m - m'|^2 + sum (s - s')^2, whatever the axes are turned by."""
    turn = np.linalg.qr(RANDOM.normal(size=(5, 5)))[0]
    one, other = np.array([1, 2, 3, 4, 5.0]), np.array([2, 2, 1, 0.5, 7])
    shift = np.array([0.5, 0, -1, 2, 0])
    expected = np.square(shift).sum() + np.square(one - other).sum()
    a, b = whitened(40, 5) * one, whitened(61, 5) * other + shift
    assert frechet_distance(a @ turn, b @ turn) == pytest.approx(expected, rel=1e-10)
    assert frechet_distance(b @ turn, a @ turn) == pytest.approx(expected, rel=1e-10)


def test_gaussians_of_two_dimensions_along_different_axes():
    """There the trace of the root of M is (tr M + 2 (det M)^(1/2))^(1/2)."""
    a, b = np.array([[2.0, 0.5], [0.5, 1.0]]), np.array([[1.0, -0.7], [-0.7, 3.0]])
    product = a @ b
    root = np.sqrt(np.trace(product) + 2 * np.sqrt(np.linalg.det(product)))
    samples = [whitened(30, 2) @ np.linalg.cholesky(covariance).T for covariance in (a, b)]
    assert frechet_distance(*samples) == pytest.approx(np.trace(a + b) - 2 * root, rel=1e-10)


def test_any_sets_as_with_a_general_matrix_root():
    a = RANDOM.normal(size=(90, 12)) @ RANDOM.normal(size=(12, 12))
    b = RANDOM.normal(size=(70, 12)) @ RANDOM.normal(size=(12, 12)) + RANDOM.normal(size=12)
    root = sqrtm(np.cov(a.T) @ np.cov(b.T)).real
    expected = np.sum((a.mean(0) - b.mean(0)) ** 2) + np.trace(np.cov(a.T) + np.cov(b.T) - 2 * root)
    assert frechet_distance(a, b) == pytest.approx(expected, rel=1e-8)


def test_a_dimension_that_never_changes_is_no_trouble():
    a, b = np.pad(whitened(20, 3), ((0, 0), (0, 1))), np.pad(2 * whitened(20, 3), ((0, 0), (0, 1)), constant_values=1)
    assert frechet_distance(a, b) == pytest.approx(1 + 3)


def test_too_few_samples_are_told():
    x = RANDOM.normal(size=(9, 8))
    assert frechet_distance(x, x) == pytest.approx(0, abs=1e-6)
    with pytest.raises(UsageError, match="8 samples of 8 dimensions; expected at least 9"):
        frechet_distance(x, x[:8])
    with pytest.raises(ValueError, match="8 and 7 dimensions"):
        frechet_distance(x, x[:, :7])
    with pytest.raises(ValueError, match="all finite"):
        frechet_distance(x, np.where(x == x[0, 0], np.nan, x))


def test_features_by_hand():
    books = np.array([[[1, 1], [1, -1], [-1, 1]]])  # their root mean square is 1
    codes = np.array([[[0, 1], [0, 0], [2, 1]]])
    expected = [[1, 1, 0, 1], [0, 0, 1, 1]]  # the cells change by (0, 0) and (0, 2), then by (-2, 0) and (0, -2)
    assert clip_features(Codebook(books, 1), codes).tolist() == expected
    assert clip_features(Codebook(7 * books, 1), codes) == pytest.approx(np.array(expected))
    with pytest.raises(UsageError, match="clips of one frame"):
        clip_features(Codebook(books, 1), codes[:, :1])
    for wrong in (codes - 1, codes + 1):
        with pytest.raises(ValueError, match="others than 0 to 2"):
            clip_features(Codebook(books, 1), wrong)


@pytest.mark.parametrize("books", [1, 3])
def test_residual_codes_are_summed_over_their_depths(books: int):
    stored = RANDOM.integers(-9, 10, (books, 5, 4))
    codes = RANDOM.integers(0, 5, (2, 3, 6, 3))
    scale = np.sqrt(np.mean(stored.astype(float) ** 2))
    found = Codebook(stored, 3).embed(codes)
    by_hand = sum(stored[depth if books > 1 else 0][codes[1, 2, 4, depth]] for depth in range(3))
    assert found.shape == (2, 3, 6, 4) and found[1, 2, 4] == pytest.approx(by_hand / scale)
    with pytest.raises(ValueError, match="last axis of 3"):
        Codebook(stored, 3).embed(codes[..., :2])


@pytest.fixture(scope="module")
def codebook(tmp_path_factory: pytest.TempPathFactory) -> Codebook:
    """Of the decoder that a bundle of `car` has."""
    folder = tmp_path_factory.mktemp("decoder")
    codes = torch.from_numpy(load_clips(CHECKPOINT, "calibration").codes[0].astype(np.int64)).view(-1, 8, 8)
    write_decoder(folder / DECODER, quantize_decoder(load_checkpoint(CHECKPOINT).tokenizer, codes))
    return read_codebook(SimpleNamespace(path=folder))


def test_the_codebook_is_that_of_the_checkpoint(codebook: Codebook):
    stored = load_checkpoint(CHECKPOINT).tokenizer.codebook.weight.detach().double().numpy()
    expected = stored / np.sqrt(np.mean(stored**2))
    assert codebook.books.shape == (1, 512, 16) and codebook.depth == 1
    assert np.abs(codebook.books[0] - expected).max() < 0.6 * np.abs(expected).max() / 127


@pytest.mark.parametrize("books", [1, 4])
def test_the_codebooks_of_residual_codes(books: int, tmp_path: Path):
    decoder = quantize_decoder(random_vqgan(codebooks=books))
    write_decoder(tmp_path / DECODER, decoder)
    found = read_codebook(SimpleNamespace(path=tmp_path))
    stored = np.stack(decoder.codebooks).astype(np.float64)
    assert found.depth == 4 and len(found.books) == books
    assert found.books == pytest.approx(stored / np.sqrt(np.mean(stored**2)))


def test_a_bundle_of_the_exporter(bundle_w8a8: Path):
    assert read_codebook(Bundle.open(bundle_w8a8)).depth == 1


def test_a_decoder_without_a_codebook_is_told(tmp_path: Path):
    with pytest.raises(BundleError, match="no codebook"):
        read_codebook(depth_bundle(tmp_path / "bundle"))


def test_real_clips_are_closer_to_each_other_than_to_what_moves_wrongly(codebook: Codebook):
    """Shuffled frames look right and jump, repeated ones do not move; single wrong codes look and flicker wrongly."""
    random = np.random.default_rng(3)
    heldout, other = (load_clips(CHECKPOINT, name).codes.astype(np.int64) for name in ("heldout", "calibration"))
    one, rest = heldout[::2], heldout[1::2]
    real = max(clip_distance(codebook, one, clips) for clips in (rest, other[::2], other[1::2]))
    order = np.argsort(random.random((32, 16)), axis=1)
    made = {
        "shuffled": np.take_along_axis(rest, order[..., None], axis=1),
        "still": np.repeat(rest[:, :1], 16, axis=1),
        "wrong": np.where(random.random(rest.shape) < 0.1, random.integers(0, 512, rest.shape), rest),
    }
    distances = {name: clip_distance(codebook, one, clips) for name, clips in made.items()}
    assert min(distances.values()) > 4 * real, (real, distances)
    assert distances["shuffled"] > distances["still"]
