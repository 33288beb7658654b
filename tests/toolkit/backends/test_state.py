"""Caches, ages and places: nothing grows or is copied per step, and replay follows its rules frame by frame."""

from __future__ import annotations

import numpy as np
import pytest
from random_models import GUIDED, Run, assert_same_bits, config, generate_clip, layout, onnx_backend, reference_backend

from fastcar.toolkit.backends.state import DecodeState
from fastcar.toolkit.numerics.attention import MASKED
from fastcar.toolkit.numerics.tas import NEVER
from fastcar.toolkit.settings import ReplaySettings

LAYERS, PLACES, PROMPT = config().layers, layout().tokens_per_frame, layout().prompt_length
ALWAYS = (-NEVER,) * LAYERS


@pytest.fixture(params=["reference", "onnxruntime"])
def backend(request, lowered):
    model, path = lowered(8)
    return reference_backend(model) if request.param == "reference" else onnx_backend(model, path)


def frames_of(backend, run: Run) -> np.ndarray:
    """Replay flags by frame of the position that was read: (frames, places, layers, rows)."""
    record = generate_clip(backend, run)
    assert record.first == PROMPT - 1 and not record.replay[0].any()
    flags = record.replay[1:]  # the first step reads the prompt's last position
    missing = np.zeros((1, *flags.shape[1:]), bool)  # the last code is not read
    return np.concatenate([flags, missing]).reshape(layout().frames, PLACES, *flags.shape[1:])


@pytest.mark.parametrize(
    ("max_age", "frames"),
    [(None, [0, 1, 1, 1]), (1, [0, 1, 0, 1]), (2, [0, 1, 1, 0]), (3, [0, 1, 1, 1])],
)
@pytest.mark.parametrize("policy", ["independent", "mean", "all"])
def test_frames_that_replay(backend, policy, max_age, frames):
    """Everything eligible replays, but never in frame 0 and at most max_age times in a row."""
    flags = frames_of(backend, Run(thresholds=ALWAYS, replay=ReplaySettings((), policy, max_age)))
    expected = np.broadcast_to(np.array(frames, bool)[:, None, None, None], flags.shape).copy()
    expected[-1, -1] = False
    np.testing.assert_array_equal(flags, expected)


def test_never_twice_in_a_row_whatever_the_scores(backend):
    flags = frames_of(backend, Run(thresholds=(0,) * LAYERS, replay=ReplaySettings((), "independent", 1), clips=3))
    assert flags.any() and not (flags[:-1] & flags[1:]).any()
    free = frames_of(backend, Run(thresholds=(0,) * LAYERS, clips=3))
    assert (free[:-1] & free[1:]).any(), "the guard made the difference"


def test_thresholds_are_per_layer(backend):
    flags = frames_of(backend, Run(thresholds=(NEVER, -NEVER, NEVER)))
    assert flags[1:, :-1, 1].all() and not flags[:, :, [0, 2]].any()


def test_counters(backend):
    record = generate_clip(backend, Run(thresholds=(0,) * LAYERS))
    assert backend.counters() == {"steps": PROMPT - 1 + 4 * PLACES, "replayed": int(record.replay.sum())}
    backend.start(1, layout().positions, GUIDED, ReplaySettings())
    assert backend.counters() == {"steps": 0, "replayed": 0}


def test_a_replayed_output_travels_unchanged(backend):
    """With everything replayed, what is cached after the last frame is what frame 0 computed."""
    read = slice(0, PLACES - 1)  # the last place of the last frame is not read
    generate_clip(backend, Run(thresholds=ALWAYS), frames=1)
    first = backend.state.replay_cache[read].copy()
    assert first.any() and not backend.state.age.any()
    generate_clip(backend, Run(thresholds=ALWAYS), frames=4)
    np.testing.assert_array_equal(backend.state.replay_cache[read], first)
    assert (backend.state.age[read] == 3).all()


def test_a_prompt_does_not_replay_however_long(backend):
    """Prefilling several frames' worth of positions computes every one of them."""
    backend.start(1, layout().positions, GUIDED, ReplaySettings())
    backend.prefill(np.zeros((2, PROMPT + 2 * PLACES), np.int64))
    assert backend.counters()["replayed"] == 0


def test_score_reads_what_decode_predicted(backend):
    """Dense logits of given tokens, whatever thresholds were set before."""
    run = Run()
    prompt = np.random.default_rng(run.seed).integers(0, layout().code_offset, (2, PROMPT))
    record = generate_clip(backend, run)
    read = np.tile(record.codes[:-1, 0] + layout().code_offset, (2, 1))
    backend.start(1, layout().positions, GUIDED, ReplaySettings())
    backend.inputs["threshold"][:] = -NEVER
    logits = backend.score(np.concatenate([prompt, read], axis=1))
    np.testing.assert_array_equal(logits[PROMPT - 1 :], record.logits)
    assert backend.counters()["replayed"] == 0


def memory_of(state: DecodeState) -> list[int]:
    return [array.ctypes.data for array in (*state.k_cache, *state.v_cache, state.mask)]


def test_caches_are_copied_once_a_frame(backend):
    """Within a frame every step appends to the same memory."""
    backend.start(1, layout().positions, GUIDED, ReplaySettings())
    moved, capacity, now = [], [], memory_of(backend.state)
    for position in range(layout().positions):
        arrays = [*backend.state.k_cache, *backend.state.v_cache, backend.state.mask]  # kept: no address is used twice
        backend.prefill(np.zeros((2, 1), np.int64))
        before, now = now, memory_of(backend.state)
        if before != now:
            assert not set(before) & set(now)
            moved.append(position)
        capacity.append(backend.state.k_cache[0].shape[2])
    assert arrays and moved == [PROMPT + PLACES, PROMPT + 2 * PLACES, PROMPT + 3 * PLACES]
    assert capacity[0] == PROMPT + PLACES and capacity[-1] == layout().positions


@pytest.mark.parametrize("grown", [False, True])
def test_the_graph_reads_the_memory_of_the_state(lowered, grown):
    """What is written into the state's arrays reaches the next step, so they are what is bound, not a copy."""
    model, path = lowered(8)
    results = []
    for touched in (False, True):
        for backend in (reference_backend(model), onnx_backend(model, path)):
            backend.start(1, layout().positions, GUIDED, ReplaySettings())
            backend.prefill(np.full((2, PROMPT + (PLACES + 1 if grown else 2)), 3))
            if touched:
                backend.state.k_cache[1][:, :, 2] = 255 - backend.state.k_cache[1][:, :, 2]
                backend.state.v_cache[2][:, :, 0] = 255
                backend.state.mask[1, 1] = MASKED
            logits = backend.decode(np.array([9, 9]), np.zeros((1, 1), np.int64), np.zeros(LAYERS, np.int64)).logits
            results.append(logits)
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[2], results[3])
    assert (results[0] != results[2]).any()


def test_capacity_does_not_count(backend, monkeypatch):
    """Caches of more than the full size from the start give the bits of those that grow."""
    run = Run(thresholds=(0,) * LAYERS)
    growing = generate_clip(backend, run)
    grow = DecodeState._grow
    monkeypatch.setattr(DecodeState, "_grow", lambda state, slots: grow(state, layout().positions + 5))
    whole = generate_clip(backend, run)
    assert backend.state.slots == layout().positions + 5
    assert_same_bits(whole, growing)


def test_growth_keeps_what_is_there():
    state = DecodeState(config(), layout(), rows=2, limit=layout().positions)
    rng = np.random.default_rng(0)
    stacked, ages, appended = LAYERS * 2, np.zeros((PLACES, LAYERS * 2), int), []
    for position in range(layout().positions):
        state.make_room()
        outputs = {
            "k": rng.integers(0, 256, (stacked, 2, 10)).astype(np.uint8),
            "v": rng.integers(0, 256, (stacked, 2, 10)).astype(np.uint8),
            "mlp_output": rng.integers(0, 1 << 16, (stacked, 48)).astype(np.uint16),
            "replay": rng.random(stacked) < 0.5,
        }
        state.append(outputs)
        appended.append(outputs)
        place = (position - PROMPT) % PLACES
        for i, replayed in enumerate(outputs["replay"]):
            ages[place, i] = ages[place, i] + 1 if replayed else 0
        np.testing.assert_array_equal(state.mask, [[0] * (position + 1) + [MASKED] * (state.slots - position - 1)] * 2)
    for name, caches in (("k", state.k_cache), ("v", state.v_cache)):
        for position, outputs in enumerate(appended):
            expected = outputs[name].reshape(LAYERS, 2, 2, 10)
            np.testing.assert_array_equal([cache[:, :, position] for cache in caches], expected)
    for place in range(PLACES):
        last = appended[layout().frame_start(3) + place]
        np.testing.assert_array_equal(state.replay_cache[place], last["mlp_output"].reshape(LAYERS, 2, 48))
    np.testing.assert_array_equal(state.age.reshape(PLACES, stacked), ages)


@pytest.mark.parametrize("position", range(PROMPT + 2 * PLACES))
def test_where_a_position_finds_its_past(position):
    state = DecodeState(config(), layout(), rows=1, limit=layout().positions)
    state.position = position
    frame = (position - PROMPT) // PLACES
    assert state.eligible == (frame >= 1)
    if position >= PROMPT:
        assert state.place == position - layout().frame_start(frame)
    assert state.slot_before == (position - PLACES if position >= PLACES else 0)


def test_beyond_the_limit():
    state = DecodeState(config(), layout(), rows=1, limit=5)
    state.position = 5
    with pytest.raises(ValueError, match="position 5 is beyond the 5 positions"):
        state.make_room()
