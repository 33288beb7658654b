"""Clips longer than the model was trained for: the same bits everywhere, and the trained part as without the room."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from random_models import (
    GUIDED,
    Run,
    assert_same_bits,
    config,
    generate_clip,
    layout,
    median_thresholds,
    onnx_backend,
    random_model,
    reference_backend,
    save_graph,
)
from small_engine import small_engine

from fastcar.export.overlay.compile import pack_model
from fastcar.hls.library import EngineLibrary
from fastcar.toolkit.backends.csim import CSimBackend
from fastcar.toolkit.backends.protocol import Backend, FrameRecord
from fastcar.toolkit.config import FrameLayout
from fastcar.toolkit.errors import BundleError, UsageError
from fastcar.toolkit.numerics.weights import IntegerModel
from fastcar.toolkit.settings import FULL_ATTENTION, AttentionSettings, ReplaySettings

SHAPE = config(hidden=48, heads=6, kv_heads=2, head_dim=16, mlp=56)
TRAINED = layout(frames=2, grid=(3, 5))  # 33 positions
LONG = TRAINED.model_copy(update={"max_frames": 9})  # 138: a second and a third block of slots on every port
ATTENTION = [FULL_ATTENTION, AttentionSettings(0, 31), AttentionSettings(3, 17)]


def model_of(where: FrameLayout) -> IntegerModel:
    return random_model(8, shape=SHAPE, frames=where)


@pytest.fixture(scope="module")
def backends(tmp_path_factory) -> dict[str, Backend]:
    model, engine = model_of(LONG), small_engine()
    return {
        "reference": reference_backend(model),
        "onnxruntime": onnx_backend(model, save_graph(model, tmp_path_factory.mktemp("long"))),
        "csim": CSimBackend(EngineLibrary(engine), pack_model(model, engine), model.config, model.layout),
    }


@cache
def expected(attention: AttentionSettings, replays: bool) -> tuple[Run, FrameRecord]:
    """Of the reference; with ``replays`` half of what is eligible in the dense clip."""
    reference, run = reference_backend(model_of(LONG)), Run(attention=attention)
    dense = generate_clip(reference, run, frames=LONG.room)
    if not replays:
        return run, dense
    run = replace(run, thresholds=median_thresholds(dense.scores, LONG))
    return run, generate_clip(reference, run, frames=LONG.room)


@pytest.mark.parametrize("attention", ATTENTION, ids=lambda one: f"{one.sinks}+{one.window}")
@pytest.mark.parametrize("replays", [False, True], ids=["dense", "replay"])
@pytest.mark.parametrize("name", ["onnxruntime", "csim"])
def test_the_same_bits_beyond_the_trained_frames(backends, name, replays, attention):
    run, clip = expected(attention, replays)
    beyond = clip.replay[LONG.trained_positions :]
    assert len(clip.codes) == 9 * 15 and (0.05 < beyond.mean() < 0.8 if replays else not beyond.any())
    assert_same_bits(generate_clip(backends[name], run, frames=LONG.room), clip)


@pytest.mark.parametrize("name", ["reference", "onnxruntime", "csim"])
def test_room_changes_nothing_of_a_trained_clip(backends, name):
    """The model made without the room, one frame after the other: also where the long clip goes on behind."""
    run, plain = Run(), reference_backend(model_of(TRAINED))
    short = generate_clip(plain, run)
    assert_same_bits(generate_clip(backends[name], run), short)
    long = generate_clip(backends[name], run, frames=LONG.room)
    np.testing.assert_array_equal(long.logits[: len(short.logits)], short.logits)


def test_a_window_forgets_what_no_window_reaches(backends):
    """With a window of 31 the last frames of 9 see no position of the first: three layers reach back 93."""
    backend = backends["onnxruntime"]
    tokens = np.random.default_rng(0).integers(7, 44, (2, LONG.positions))
    other = tokens.copy()
    other[:, :20] = np.random.default_rng(1).integers(7, 44, (2, 20))
    for attention, forgets in ((AttentionSettings(0, 31), True), (FULL_ATTENTION, False)):
        logits = []
        for text in (tokens, other):
            backend.start(1, LONG.positions, GUIDED, ReplaySettings(), attention)
            backend.prefill(text[:, :-1])
            logits.append(backend.score(text[:, -1:]))
        assert np.array_equal(*logits) == forgets


def test_no_back_end_goes_beyond_the_room(backends):
    tokens = np.zeros((2, LONG.positions + 1), np.int64)
    for name, error in (("reference", ValueError), ("onnxruntime", ValueError), ("csim", BundleError)):
        backend = backends[name]
        backend.start(1, LONG.positions, GUIDED, ReplaySettings())
        backend.prefill(tokens[:, :-1])
        with pytest.raises(error, match="BAD_CONTEXT" if name == "csim" else "beyond the 138 positions"):
            backend.prefill(tokens[:, -1:])


def test_an_engine_with_too_few_slots_says_how_much_room_it_has():
    engine = small_engine(max_slots=64)
    with pytest.raises(UsageError, match=r"positions 138; expected at most 64.*--max-frames 4\."):
        pack_model(model_of(LONG), engine)
    fits = TRAINED.model_copy(update={"max_frames": 4})
    pack_model(model_of(fits), engine)
    with pytest.raises(UsageError, match=r"positions 78; expected at most 64.*Choose a larger engine\.$"):
        pack_model(model_of(layout(frames=5, grid=(3, 5))), engine)
