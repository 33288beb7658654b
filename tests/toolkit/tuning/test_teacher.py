"""Following a dense clip with replay: nothing differs without it, and what does is that clip's own predictions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from car_like import BACKBONE, LAYOUT

from fastcar.toolkit.backends.protocol import Backend
from fastcar.toolkit.backends.registry import open_backend
from fastcar.toolkit.bundle.bundle import Bundle
from fastcar.toolkit.generation.run import generate, prompt_tokens
from fastcar.toolkit.settings import ReplaySettings, SamplingSettings
from fastcar.toolkit.tuning.teacher import Scene, Teacher, follow, record_teacher

SAMPLING = SamplingSettings(guidance=2.0)
ALWAYS = (float("-inf"),) * BACKBONE.layers


@pytest.fixture(scope="module")
def bundle(bundle_w8a8: Path) -> Bundle:
    return Bundle.open(bundle_w8a8)


@pytest.fixture(scope="module", params=["onnxruntime", "reference"])
def backend(request: pytest.FixtureRequest, bundle: Bundle) -> Backend:
    return open_backend(request.param, bundle, threads=1)


@pytest.fixture(scope="module")
def teacher(bundle: Bundle, backend: Backend) -> Teacher:
    return record_teacher(bundle, backend, Scene("left turn", 3), sampling=SAMPLING)


def test_what_is_read_is_the_dense_clip(bundle: Bundle, teacher: Teacher):
    dense = generate(bundle, "left turn", seed=3, sampling=SAMPLING)
    tokens = prompt_tokens(bundle, ("left turn",), SAMPLING)
    clip = dense.codes.reshape(-1) + LAYOUT.code_offset
    assert (np.stack(teacher.read)[1:] == clip[:-1, None]).all()
    assert (teacher.read[0] == tokens[:, -1]).all() and (teacher.prompt == tokens[:, :-1]).all()


def test_without_replay_nothing_differs(bundle: Bundle, backend: Backend, teacher: Teacher):
    found = follow(bundle, backend, teacher, ReplaySettings())
    assert found.divergence == 0 and (found.shares == 0).all()


def test_divergence_is_that_of_the_logits_along_the_clip(bundle: Bundle, backend: Backend, teacher: Teacher):
    """By another way: a back end that reads the clip in one decode a frame cannot, so its steps are spelled out."""
    replay = ReplaySettings(ALWAYS, "all")
    found = follow(bundle, backend, teacher, replay)
    assert found.ratio == 1 and found.divergence > 0
    backend.start(1, LAYOUT.positions, SAMPLING, replay)
    backend.prefill(teacher.prompt)
    never, always = (np.full(BACKBONE.layers, value, np.int64) for value in (1 << 40, -(1 << 40)))
    draw, places = np.zeros((1, 1), np.int64), LAYOUT.tokens_per_frame
    logits = np.stack(
        [
            backend.decode(read, draw, always if step >= places else never).logits[0, 0]
            for step, read in enumerate(teacher.read)
        ]
    )
    softmax = [
        x / x.sum(axis=1, keepdims=True) for x in (np.exp(y.astype(np.longdouble)) for y in (teacher.predicted, logits))
    ]
    one, other = (part[places:] for part in softmax)
    assert found.divergence == pytest.approx(float((one * np.log(one / other)).sum(axis=1).mean()), rel=1e-9)


def test_shares_and_scores_are_of_the_eligible(bundle: Bundle, backend: Backend, teacher: Teacher):
    replay = ReplaySettings((None, float("-inf")), "all")
    found = follow(bundle, backend, teacher, replay)
    assert found.shares.tolist() == [0, 1]
    assert found.scores.shape == (2, (LAYOUT.frames - 1) * LAYOUT.tokens_per_frame - 1)
    middle = float(np.median(found.scores[0]))
    half = follow(bundle, backend, teacher, ReplaySettings((middle, float("-inf")), "all"))
    assert half.shares[0] == pytest.approx(0.5, abs=0.05)


def test_a_held_ratio_has_no_fixed_thresholds_to_follow(bundle: Bundle, backend: Backend, teacher: Teacher):
    with pytest.raises(ValueError, match="fixed"):
        follow(bundle, backend, teacher, ReplaySettings(hold=0.5))
