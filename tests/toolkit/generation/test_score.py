"""How probable clips are, against the logits of the run that made them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from car_like import LAYOUT
from depth_bundle import depth_bundle

from fastcar.toolkit.backends.registry import open_backend
from fastcar.toolkit.bundle.bundle import Bundle
from fastcar.toolkit.generation.run import generate
from fastcar.toolkit.generation.score import code_losses, cross_entropy, frame_losses
from fastcar.toolkit.settings import ReplaySettings, SamplingSettings

PHRASES = ["left turn", "braking"]


def losses_of(logits: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Nats of codes (...), from logits (..., codes)."""
    logits = logits.astype(np.float64)
    chosen = np.take_along_axis(logits, codes.astype(np.int64)[..., None], axis=-1)[..., 0]
    return np.log(np.exp(logits).sum(axis=-1)) - chosen


@pytest.fixture(scope="module")
def bundle(bundle_w8a8: Path) -> Bundle:
    return Bundle.open(bundle_w8a8)


def prompts_of(bundle: Bundle, phrases: list[str]) -> np.ndarray:
    return np.stack([bundle.prompts.encode(phrase, bundle.manifest.frame_layout.prompt_length) for phrase in phrases])


@pytest.mark.parametrize("frames", [1, 2])
def test_a_dense_clip_has_the_losses_of_its_own_logits(bundle: Bundle, frames: int):
    run = generate(bundle, PHRASES, frames=frames, seed=2, sampling=SamplingSettings(), record_logits=True)
    backend, prompts, seen = open_backend("onnxruntime", bundle), prompts_of(bundle, PHRASES), []
    found = frame_losses(backend, prompts, run.codes, lambda *at: seen.append(at))
    each = losses_of(run.logits, run.codes)
    assert found.shape == (2, frames) and found == pytest.approx(each.mean(axis=2), rel=1e-12)
    assert len(np.unique(found)) == 2 * frames and seen[-1][0] == seen[-1][1]
    tokens = np.concatenate([prompts, LAYOUT.flattened(run.codes)], axis=1)
    assert code_losses(backend, tokens) == pytest.approx(each.reshape(2, -1), rel=1e-12)
    assert cross_entropy(backend, tokens) == pytest.approx(found.mean(), rel=1e-12)


def test_a_replayed_clip_is_read_by_a_dense_run(bundle: Bundle):
    """Of the same codes, however they came to be: the run that replayed them had other logits."""
    replay = ReplaySettings((float("-inf"),) * bundle.manifest.config.layers)
    unguided = SamplingSettings(temperature=1.0)
    run = generate(bundle, PHRASES[0], frames=2, seed=2, sampling=unguided, replay=replay, record_logits=True)
    found = frame_losses(open_backend("reference", bundle), prompts_of(bundle, PHRASES[:1]), run.codes)
    own = losses_of(run.logits, run.codes).mean(axis=2)
    assert found[0, 0] == pytest.approx(own[0, 0], rel=1e-12)  # nothing is replayed in the first frame
    assert abs(found[0, 1] - own[0, 1]) > 1e-4


def test_with_a_depth_transformer(tmp_path: Path):
    bundle = depth_bundle(tmp_path / "depth")
    run = generate(bundle, ["a", "b"], frames=3, sampling=SamplingSettings(), record_logits=True)
    found = frame_losses(open_backend("onnxruntime", bundle), prompts_of(bundle, ["a", "b"]), run.codes)
    assert found == pytest.approx(losses_of(run.logits, run.codes).mean(axis=(2, 3)), rel=1e-12)
    assert found.shape == (2, 3)


def test_what_does_not_fit_the_model_is_refused(bundle: Bundle):
    backend, prompts = open_backend("reference", bundle), prompts_of(bundle, PHRASES)
    codes = np.zeros((2, 1, LAYOUT.cells), np.int64)
    for wrong in (codes[:1], codes[..., 1:], codes[..., None]):
        with pytest.raises(ValueError, match=r"expected \(clips, \d+\) and \(clips, frames, \d+\)"):
            frame_losses(backend, prompts, wrong)
    with pytest.raises(ValueError, match="positions; expected"):
        frame_losses(backend, prompts, np.zeros((2, LAYOUT.frames + 1, LAYOUT.cells), np.int64))
