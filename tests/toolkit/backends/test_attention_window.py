"""Sinks, a window and columns: what a step sees, in the mask and in its results, and that replay goes on beneath."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from random_models import (
    GUIDED,
    UNGUIDED,
    Run,
    assert_same_bits,
    config,
    generate_clip,
    layout,
    median_thresholds,
    onnx_backend,
    reference_backend,
)

from fastcar.toolkit.backends.protocol import SteppingBackend
from fastcar.toolkit.backends.state import DecodeState
from fastcar.toolkit.numerics.attention import MASKED
from fastcar.toolkit.numerics.tas import NEVER
from fastcar.toolkit.settings import FULL_ATTENTION, AttentionSettings, ReplaySettings

LAYERS, PLACES, PROMPT = config().layers, layout().tokens_per_frame, layout().prompt_length
POSITIONS = layout().positions
ALWAYS = (-NEVER,) * LAYERS
LONGEST_PAST = POSITIONS - 2  # of the last step: the last code is not read
CASES = [  # a frame has 6 places, the prompt 3 positions, the clip 27
    AttentionSettings(0, 1),
    AttentionSettings(0, 4),
    AttentionSettings(2, 4),
    AttentionSettings(5, 6),
    AttentionSettings(0, 7),
    AttentionSettings(3, 13),
    AttentionSettings(12, 2),
    AttentionSettings(0, 1, 1),
    AttentionSettings(2, 4, 3),
    AttentionSettings(0, 7, 2),  # the first column is in the window
    AttentionSettings(11, 2, 64),  # more than there are frames; some are sinks
]
every_case = pytest.mark.parametrize("attention", CASES, ids=lambda case: f"{case.sinks}+{case.window}+{case.columns}")


def visible(position: int, attention: AttentionSettings) -> set[int]:
    """By the definition, slot by slot."""
    if attention.window is None:
        return set(range(position))
    frame_of, place_of = (lambda s: (s - PROMPT) // PLACES), (lambda s: (s - PROMPT) % PLACES)
    return {
        s
        for s in range(position)
        if s < attention.sinks
        or s >= position - attention.window
        or (s >= PROMPT and place_of(s) == place_of(position) and frame_of(position) - frame_of(s) <= attention.columns)
    }


@pytest.fixture(scope="module")
def backends(lowered):
    model, path = lowered(8)
    return reference_backend(model), onnx_backend(model, path)


@pytest.fixture(params=[0, 1], ids=["reference", "onnxruntime"])
def backend(request, backends) -> SteppingBackend:
    return backends[request.param]


def started(backend: SteppingBackend, attention: AttentionSettings) -> SteppingBackend:
    backend.start(1, POSITIONS, GUIDED, ReplaySettings(), attention)
    return backend


@pytest.mark.parametrize("attention", [FULL_ATTENTION, AttentionSettings(0, 99), AttentionSettings(99, 1), *CASES])
def test_the_mask_follows_the_definition(attention):
    """At every position, through every growth of the caches; a step changes few slots, in place."""
    state = DecodeState(config(), layout(), 2, POSITIONS, attention)
    zeros = np.zeros((LAYERS * 2, 2, 10), np.uint8)
    outputs = {"k": zeros, "v": zeros, "mlp_output": np.zeros((LAYERS * 2, 48), np.uint16), "replay": np.zeros(6, bool)}
    for position in range(POSITIONS):
        state.make_room()
        seen = visible(position, attention)
        expected = [0 if slot in seen else MASKED for slot in range(state.slots)]
        assert state.mask.tolist() == [expected] * 2, position
        mask, before = state.mask, state.mask.copy()
        state.append(outputs)
        assert state.mask is mask and (mask != before).any(axis=0).sum() <= 2 + 2 * attention.columns


@pytest.mark.parametrize("attention", [AttentionSettings(0, 2, 3), AttentionSettings(1, 8, 2)])
def test_columns_leave_padding_hidden(attention):
    """Rows that begin behind others, the first of them within the frames: nothing before it is seen."""
    begins = np.array([PROMPT + PLACES, 1, 0])
    state = DecodeState(config(), layout(), 3, POSITIONS, attention)
    zeros = np.zeros((LAYERS * 3, 2, 10), np.uint8)
    outputs = {"k": zeros, "v": zeros, "mlp_output": np.zeros((LAYERS * 3, 48), np.uint16), "replay": np.zeros(9, bool)}
    for position in range(POSITIONS):
        state.make_room()
        for row, begin in enumerate(begins):
            sinks = set(range(begin, min(begin + attention.sinks, position)))  # counted from where the row begins
            others = visible(position, AttentionSettings(0, attention.window, attention.columns))
            expected = {slot for slot in others | sinks if slot >= begin}
            assert set(np.flatnonzero(state.mask[row] == 0)) == expected, (position, row)
        state.append(outputs, position < begins)


@every_case
@pytest.mark.parametrize("sampling", [GUIDED, UNGUIDED], ids=["guided", "unguided"])
def test_both_back_ends_give_the_same_bits(backends, attention, sampling):
    """Dense and with half of the eligible evaluations replayed."""
    reference, onnx = backends
    dense = Run(sampling=sampling, attention=attention)
    expected = generate_clip(reference, dense)
    assert_same_bits(generate_clip(onnx, dense), expected)
    full = generate_clip(reference, Run(sampling=sampling))
    assert (full.logits != expected.logits).any(), "the window made a difference"
    half = Run(sampling=sampling, attention=attention, thresholds=median_thresholds(expected.scores, layout()))
    expected = generate_clip(reference, half)
    assert 0.05 < expected.replay.mean() < 0.7
    assert_same_bits(generate_clip(onnx, half), expected)


def test_int4_and_several_clips(lowered):
    model, path = lowered(4, "pre_rope")
    run = Run(clips=2, thresholds=(0,) * LAYERS, attention=AttentionSettings(2, 5))
    assert_same_bits(generate_clip(onnx_backend(model, path), run), generate_clip(reference_backend(model), run))


@pytest.mark.parametrize(
    "attention",
    [
        AttentionSettings(0, LONGEST_PAST),
        AttentionSettings(0, 1 << 30),
        AttentionSettings(LONGEST_PAST - 1, 1),
        AttentionSettings(1 << 30, 1),
    ],
    ids=str,
)
def test_a_window_over_the_whole_clip_is_full_attention(backend, attention):
    run = Run(thresholds=(0,) * LAYERS)
    full = generate_clip(backend, run)
    assert_same_bits(generate_clip(backend, Run(thresholds=run.thresholds, attention=attention)), full)


@pytest.mark.parametrize("attention", [AttentionSettings(0, LONGEST_PAST - 1), AttentionSettings(LONGEST_PAST - 2, 1)])
def test_one_slot_less_changes_the_last_step_alone(backend, attention):
    full, windowed = (generate_clip(backend, Run(attention=used)).logits for used in (FULL_ATTENTION, attention))
    np.testing.assert_array_equal(windowed[:-1], full[:-1])
    assert (windowed[-1] != full[-1]).any()


@every_case
def test_only_visible_slots_reach_the_result(backend, attention):
    """Each slot of the past altered in turn: the next logits change exactly where the slot is visible."""
    tokens = np.random.default_rng(0).integers(7, 44, (2, POSITIONS))
    for position in (PROMPT + 1, PROMPT + PLACES + 2, POSITIONS - 2):
        started(backend, attention).prefill(tokens[:, :position])
        state = backend.state
        caches = [*state.k_cache, *state.v_cache]
        state.make_room()
        assert caches[0] is state.k_cache[0], "no growth at this position"

        def logits(position: int = position) -> np.ndarray:
            backend.inputs["tokens"][:], backend.inputs["position"][:] = tokens[:, position], position
            return backend.run_step()["logits"].copy()

        expected, changed = logits(), set()
        for slot in range(position):
            kept = [cache[:, :, slot].copy() for cache in caches]
            for cache in caches:
                cache[:, :, slot] = 255 - cache[:, :, slot]
            if (logits() != expected).any():
                changed.add(slot)
            for cache, old in zip(caches, kept, strict=True):
                cache[:, :, slot] = old
        assert changed <= visible(position, attention)
        assert len(changed) >= 0.8 * len(visible(position, attention)), "a weight below 2^-15 may change nothing"


def test_tas_reads_a_frame_back_whatever_the_window(backend, monkeypatch):
    """The first layer's q and k depend on the tokens alone: its scores stay when the slot they read is not visible."""
    tokens = np.random.default_rng(1).integers(7, 44, (2, POSITIONS - 1))
    run_step, scores = backend.run_step, []

    def recorded() -> dict[str, np.ndarray]:
        outputs = run_step()
        scores[-1].append(outputs["tas"][:2].copy())
        return outputs

    monkeypatch.setattr(backend, "run_step", recorded)
    for attention in (FULL_ATTENTION, AttentionSettings(0, 1), AttentionSettings(2, 5), AttentionSettings(0, 1, 2)):
        scores.append([])
        started(backend, attention).prefill(tokens)
    full, *windowed = np.array(scores)
    assert len(np.unique(full[PROMPT + PLACES :])) > PLACES
    for found in windowed:
        np.testing.assert_array_equal(found, full)


@pytest.mark.parametrize("attention", [AttentionSettings(0, 1), AttentionSettings(2, 4, 1)], ids=str)
@pytest.mark.parametrize(("max_age", "frames"), [(None, [0, 1, 1, 1]), (1, [0, 1, 0, 1])])
def test_replay_with_a_window_smaller_than_a_frame(backend, attention, max_age, frames):
    replay = ReplaySettings((), "independent", max_age)
    record = generate_clip(backend, Run(thresholds=ALWAYS, replay=replay, attention=attention))
    flags = record.replay[1:]  # the first step reads the prompt's last position
    expected = np.repeat(np.array(frames, bool), PLACES)[:-1, None, None]
    np.testing.assert_array_equal(flags, np.broadcast_to(expected, flags.shape))


def test_start_forgets_the_window(backend):
    first = generate_clip(backend, Run())
    for attention in CASES[:2]:
        generate_clip(backend, Run(attention=attention))
    assert_same_bits(generate_clip(backend, Run()), first)


def test_every_window_counts(backend):
    runs = [generate_clip(backend, Run(attention=attention)).logits for attention in CASES]
    assert all((a != b).any() for a, b in pairwise(runs))
