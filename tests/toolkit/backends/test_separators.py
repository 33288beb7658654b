"""Frames with separators: the same bits everywhere, and what an independent walk over the flattened clip says."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
import random_models
from float_decoder import FloatDecoder
from random_models import (
    GUIDED,
    UNGUIDED,
    Run,
    assert_same_bits,
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
from fastcar.toolkit.backends.protocol import FrameRecord
from fastcar.toolkit.config import SAMPLED
from fastcar.toolkit.numerics.weights import IntegerModel
from fastcar.toolkit.settings import ReplaySettings

BEFORE, ROW, AFTER = (44, 2), (45,), (0, 46, 45)  # some below the codes, some above, one of two kinds
FRAMES = layout(frames=3, grid=(3, 5), before_frame=BEFORE, after_row=ROW, after_frame=AFTER)
KINDS = {
    "all": {},
    "before": {"after_row": (), "after_frame": ()},
    "rows": {"before_frame": (), "after_frame": ()},
    "after": {"before_frame": (), "after_row": ()},
}


def spelled_out(changes: dict[str, tuple[int, ...]]) -> list[int]:
    """The frame's tokens one after the other, -1 for a code."""
    where = {"before_frame": BEFORE, "after_row": ROW, "after_frame": AFTER} | changes
    places = list(where["before_frame"])
    for _ in range(3):
        places += [-1, -1, -1, -1, -1, *where["after_row"]]
    return places + list(where["after_frame"])


@cache
def model_of(bits: int = 8, kind: str = "all") -> IntegerModel:
    shape = random_models.config(hidden=64, heads=4, kv_heads=2, head_dim=16, mlp=64, vocab=47)
    groups = {} if bits == 8 else dict.fromkeys(("qkv", "output", "gate_up", "down"), 32)
    return random_model(bits, shape=shape, frames=FRAMES.model_copy(update=KINDS[kind]), groups=groups)


@cache
def engine() -> EngineLibrary:
    return EngineLibrary(small_engine())


def simulation(model: IntegerModel) -> CSimBackend:
    return CSimBackend(engine(), pack_model(model, small_engine()), model.config, model.layout)


def replaying(model: IntegerModel, **settings: object) -> Run:
    """With thresholds that half of the eligible scores of the dense clip exceed."""
    dense = generate_clip(reference_backend(model), Run(**settings))
    return Run(**settings, thresholds=median_thresholds(dense.scores, model.layout))


def given_tokens(record: FrameRecord, pattern: list[int]) -> np.ndarray:
    """What the steps after the first read: (steps - 1, clips), by walking over the frame's spelled-out places."""
    read = record.codes[:-1] + 7
    for step in range(len(read)):
        if pattern[step % len(pattern)] >= 0:
            read[step] = pattern[step % len(pattern)]
    return read


@pytest.mark.parametrize("kind", KINDS)
def test_places_of_a_frame(kind: str) -> None:
    frames, expected = FRAMES.model_copy(update=KINDS[kind]), spelled_out(KINDS[kind])
    assert frames.pattern.tolist() == expected and frames.tokens_per_frame == len(expected)
    assert frames.cells == 15 and frames.cell_places.tolist() == [i for i, token in enumerate(expected) if token < 0]
    assert frames.positions == 3 + 3 * len(expected) and frames.frame_start(2) == 3 + 2 * len(expected)
    whole = [-1] * 3 + 3 * expected
    assert frames.forced(0, len(whole)).tolist() == whole and frames.forced(5, 4).tolist() == whole[5:9]
    for position in range(len(whole) - 1):
        token = whole[position + 1]
        assert frames.after(position, np.array([4])).tolist() == [11 if token == SAMPLED else token]
    codes = np.arange(2 * 3 * 15).reshape(2, 3, 15) % 37
    flat = frames.flattened(codes)
    assert flat.shape == (2, 3 * len(expected))
    assert (flat.reshape(2, 3, -1)[..., frames.cell_places] == codes + 7).all()
    assert [token for token in flat[1].tolist() if not 7 <= token < 44] == [t for t in 3 * expected if t >= 0]


@pytest.mark.parametrize("policy", ["independent", "mean", "all"])
@pytest.mark.parametrize("sampling", [GUIDED, UNGUIDED], ids=["guided", "unguided"])
@pytest.mark.parametrize("bits", [8, 4])
def test_the_same_bits(tmp_path: Path, bits: int, sampling, policy: str) -> None:
    model = model_of(bits)
    replay = ReplaySettings((), policy, {"independent": None, "mean": 1, "all": 2}[policy])
    run = replaying(model, clips=2, sampling=sampling, replay=replay)
    expected = generate_clip(reference_backend(model), run)
    assert 0.02 < expected.replay.mean() < 0.8
    assert_same_bits(generate_clip(onnx_backend(model, save_graph(model, tmp_path)), run), expected)
    assert_same_bits(generate_clip(simulation(model), run), expected)


@pytest.mark.parametrize("kind", list(KINDS)[1:])
def test_each_kind_alone(tmp_path: Path, kind: str) -> None:
    model = model_of(8, kind)
    run = replaying(model)
    expected = generate_clip(reference_backend(model), run)
    assert_same_bits(generate_clip(onnx_backend(model, save_graph(model, tmp_path)), run), expected)
    assert_same_bits(generate_clip(simulation(model), run), expected)


def test_more_than_a_frame_at_once() -> None:
    """The engine's starts are cut where its records end, in the middle of a frame, too."""
    model = model_of()
    uniforms = np.random.default_rng(1).integers(0, 1 << 24, (FRAMES.tokens_per_frame + 7, 1))
    thresholds = np.zeros(model.config.layers, np.int64)
    records = []
    for backend in (reference_backend(model), simulation(model)):
        backend.start(1, FRAMES.positions, GUIDED, ReplaySettings())
        backend.prefill(np.array([[1, 2], [1, 3]]))
        records.append(backend.decode(np.array([4, 4]), uniforms, thresholds))
    assert_same_bits(*records)


@pytest.mark.parametrize("kind", KINDS)
def test_an_independent_walk_over_the_flattened_clip(kind: str) -> None:
    """Binary64, one position at a time, tokens laid out by hand: "one frame earlier" counts the separators."""
    model, pattern = model_of(8, kind), spelled_out(KINDS[kind])
    run = replaying(model)
    record = generate_clip(reference_backend(model), run)
    prompt = np.random.default_rng(run.seed).integers(0, 7, (2, 3))
    read = np.concatenate([prompt, np.tile(given_tokens(record, pattern).T, (2, 1))], axis=1)

    walk, found = FloatDecoder(model), []
    walk.before = len(pattern)
    for position in range(read.shape[1]):
        step = position - record.first
        found.append(walk.step(read[:, position], record.replay[step] if step >= 0 else None))
    logits = np.array([one for one, _ in found[record.first :]])
    guided = logits[:, 1] + run.sampling.guidance * (logits[:, 0] - logits[:, 1])
    assert np.corrcoef(guided.ravel(), record.logits[:, 0].ravel())[0, 1] > 0.995

    later = slice(len(pattern) + 1, None)  # the first step reads the prompt's last token
    assert not record.replay[: len(pattern) + 1].any() and record.replay[later].any()
    scores = np.array([tas for _, tas in found[record.first :]])[later]
    for layer in range(model.config.layers):
        assert np.corrcoef(scores[:, layer].ravel(), record.scores[later, layer].ravel())[0, 1] > 0.99


def test_a_wrong_distance_would_be_seen() -> None:
    """The same walk with the distance of a frame without its separators does not fit."""
    model, pattern = model_of(), spelled_out({})
    run = replaying(model)
    record = generate_clip(reference_backend(model), run)
    prompt = np.random.default_rng(run.seed).integers(0, 7, (2, 3))
    read = np.concatenate([prompt, np.tile(given_tokens(record, pattern).T, (2, 1))], axis=1)
    walk = FloatDecoder(model)
    walk.before = 15
    tas = np.array([walk.step(read[:, position])[1] for position in range(read.shape[1])])
    later = slice(len(pattern) + 1, None)
    found = [np.corrcoef(tas[record.first :][later, layer].ravel(), record.scores[later, layer].ravel())[0, 1]
             for layer in range(model.config.layers)]  # fmt: skip
    assert max(found) < 0.9


def test_separators_change_what_follows() -> None:
    """They are read: another token in their place gives another clip."""
    model = model_of()
    other = model_of()
    other = random_model(8, shape=model.config, frames=FRAMES.model_copy(update={"before_frame": (44, 3)}))
    codes = [generate_clip(reference_backend(one), Run()).codes for one in (model, other)]
    assert (codes[0] != codes[1]).any()


@pytest.mark.parametrize("name", ["before_frame", "after_row", "after_frame"])
@pytest.mark.parametrize("token", [7, 43])
def test_a_code_is_no_separator(name: str, token: int) -> None:
    with pytest.raises(ValueError, match=rf"{name} holds {token}, which is a code \(7 to 43\)"):
        layout(**{name: (token,)})
