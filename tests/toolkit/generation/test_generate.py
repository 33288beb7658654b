"""The loop: the same seed gives the same codes anywhere, and the record says of each code what happened to it."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from car_like import BACKBONE, LAYOUT

from fastcar.toolkit.backends.protocol import Backend, FrameRecord
from fastcar.toolkit.backends.registry import open_backend
from fastcar.toolkit.bundle.bundle import Bundle
from fastcar.toolkit.errors import UsageError
from fastcar.toolkit.generation.record import Generation
from fastcar.toolkit.generation.run import generate, uniforms
from fastcar.toolkit.settings import FULL_ATTENTION, AttentionSettings, ReplaySettings, SamplingSettings

PLACES, FRAMES, LAYERS = LAYOUT.tokens_per_frame, LAYOUT.frames, BACKBONE.layers
EVERYTHING = ReplaySettings((float("-inf"),) * LAYERS)
SOME = ReplaySettings((-0.6, -0.6))
GUIDED = SamplingSettings(temperature=1.0, top_p=0.95, guidance=2.0)
UNGUIDED = SamplingSettings(temperature=1.0, top_p=0.95, guidance=1.0)

SCRIPT = """
import sys, fastcar
from fastcar.toolkit.backends.registry import open_backend
from fastcar.toolkit.settings import ReplaySettings
from test_generate import fingerprint
bundle = fastcar.Bundle.open(sys.argv[1])
for threads in (1, 2):
    backend, replay = open_backend("onnxruntime", bundle, threads), ReplaySettings((-0.6, -0.6))
    print(fingerprint(fastcar.generate(bundle, "left turn", seed=9, replay=replay, backend=backend)))
"""


def fingerprint(run: Generation) -> str:
    digest = hashlib.sha256()
    for value in (run.codes, run.tas, run.replay):
        digest.update(value.tobytes())
    return digest.hexdigest()


@pytest.fixture(scope="module")
def bundle(bundle_w8a8: Path) -> Bundle:
    return Bundle.open(bundle_w8a8)


@pytest.fixture(scope="module")
def backend(bundle: Bundle) -> Backend:
    return open_backend("onnxruntime", bundle, threads=1)


class Spy:
    """Passes everything to another back end, keeps what decode returned, and fails on request."""

    def __init__(self, inner: Backend, fail_at: int | None = None) -> None:
        self.inner, self.fail_at, self.records = inner, fail_at, []
        self.config, self.layout, self.name = inner.config, inner.layout, inner.name
        self.prefilled: np.ndarray | None = None

    def start(self, *arguments: object) -> None:
        self.started = arguments
        self.inner.start(*arguments)

    def prefill(self, tokens: np.ndarray) -> None:
        self.prefilled = tokens
        self.inner.prefill(tokens)

    def decode(self, *arguments: np.ndarray) -> FrameRecord:
        if len(self.records) == self.fail_at:
            raise KeyboardInterrupt
        self.records.append(self.inner.decode(*arguments))
        return self.records[-1]

    def counters(self) -> dict[str, int]:
        return self.inner.counters()


def test_same_seed_same_codes_in_another_process_and_on_two_threads(bundle: Bundle, backend: Backend):
    expected = generate(bundle, "left turn", seed=9, replay=SOME, backend=backend)
    assert 0 < expected.replay_ratio < 0.75
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    command = [sys.executable, "-c", SCRIPT, str(bundle.path)]
    result = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}, check=False
    )
    assert result.stdout.split() == [fingerprint(expected)] * 2, result.stderr


def test_the_reference_gives_the_same_clip(bundle_w4a8: Path):
    bundle = Bundle.open(bundle_w4a8)
    runs = [generate(bundle, "sliding", seed=3, replay=SOME, backend=name) for name in ("onnxruntime", "reference")]
    assert fingerprint(runs[0]) == fingerprint(runs[1])


def test_a_second_run_is_not_touched_by_the_first(bundle: Bundle, backend: Backend):
    first = generate(bundle, "left turn", seed=9, replay=SOME, backend=backend)
    generate(bundle, ["braking", "slow"], seed=1, frames=2, sampling=UNGUIDED, replay=EVERYTHING, backend=backend)
    assert fingerprint(generate(bundle, "left turn", seed=9, replay=SOME, backend=backend)) == fingerprint(first)


def test_seeds_prompts_and_guidance_matter(bundle: Bundle, backend: Backend):
    runs = [
        generate(bundle, prompt, seed=seed, sampling=sampling, backend=backend).codes.tobytes()
        for prompt, seed, sampling in (
            ("left turn", 1, GUIDED),
            ("left turn", 2, GUIDED),
            ("left turn", 2**64 - 1, GUIDED),
            ("braking", 1, GUIDED),
            ("left turn", 1, UNGUIDED),
        )
    ]
    assert len(set(runs)) == len(runs)


def test_attention_reaches_the_back_end_and_the_record(bundle: Bundle, backend: Backend):
    runs = []
    for attention in (None, FULL_ATTENTION, AttentionSettings(0, LAYOUT.positions), AttentionSettings(3, 2)):
        spy = Spy(backend)
        runs.append(generate(bundle, "left turn", seed=9, replay=SOME, attention=attention, backend=spy))
        assert runs[-1].attention == spy.started[4] == (attention or FULL_ATTENTION)
    full, *wide, narrow = map(fingerprint, runs)
    assert wide == [full, full] and narrow != full


def test_the_reference_sees_the_same_window(bundle: Bundle):
    common = {"seed": 3, "replay": SOME, "attention": AttentionSettings(3, PLACES - 1)}
    runs = [generate(bundle, "sliding", backend=name, **common) for name in ("onnxruntime", "reference")]
    assert fingerprint(runs[0]) == fingerprint(runs[1]) and runs[0].replay.any()


def test_guidance_doubles_the_rows(bundle: Bundle, backend: Backend):
    for sampling, rows in ((GUIDED, 4), (UNGUIDED, 2)):
        spy = Spy(backend)
        run = generate(bundle, ["left turn", "slow"], frames=2, sampling=sampling, backend=spy)
        assert run.rows == rows == run.tas.shape[3] == spy.prefilled.shape[0]
        assert run.codes.shape == (2, 2, PLACES)
    words = bundle.prompts.words
    assert spy.prefilled.tolist() == [[words["left"], words["turn"], 0], [words["slow"], 0, 0]]


def test_conditional_rows_come_first(bundle: Bundle, backend: Backend):
    spy = Spy(backend)
    generate(bundle, ["left turn", "slow"], frames=1, sampling=GUIDED, backend=spy)
    words = bundle.prompts.words
    assert spy.prefilled.tolist() == [[words["left"], words["turn"], 0], [words["slow"], 0, 0], [0, 0, 0], [0, 0, 0]]


@pytest.mark.parametrize("sampling", [GUIDED, UNGUIDED], ids=["guided", "unguided"])
@pytest.mark.parametrize("replay", [ReplaySettings(), SOME, EVERYTHING], ids=["dense", "some", "everything"])
def test_a_clip_does_not_depend_on_the_others_of_its_batch(
    bundle: Bundle, backend: Backend, sampling: SamplingSettings, replay: ReplaySettings
):
    """With each row deciding alone. Uniforms are keyed by (seed, index): the first clip of any batch is the single run.

    A later clip has uniforms of its own, so the same prompt twice in a batch is two different clips.
    """
    options = {"seed": 5, "sampling": sampling, "replay": replay, "backend": backend}
    single = generate(bundle, "left turn", **options)
    batch = generate(bundle, ["left turn", "left turn", "braking"], **options)
    own = [0, 3] if sampling.guided else [0]
    np.testing.assert_array_equal(batch.codes[:1], single.codes)
    np.testing.assert_array_equal(batch.tas[..., own], single.tas)
    np.testing.assert_array_equal(batch.replay[..., own], single.replay)
    assert not np.array_equal(batch.codes[1], batch.codes[0])
    other = generate(bundle, ["left turn", "left turn", "slow"], **options)
    np.testing.assert_array_equal(batch.codes[:2], other.codes[:2])


def test_fewer_frames_are_the_start_of_the_longer_clip(bundle: Bundle, backend: Backend):
    long = generate(bundle, "slow", seed=2, backend=backend)
    short = generate(bundle, "slow", seed=2, frames=2, backend=backend)
    np.testing.assert_array_equal(short.codes, long.codes[:, :2])


def test_record_belongs_to_the_step_that_reads_the_code(bundle: Bundle, backend: Backend):
    """Step i reads position prompt_length - 1 + i: its code decides nothing before that step has run."""
    spy = Spy(backend)
    run = generate(bundle, "left turn", seed=4, replay=SOME, backend=spy, record_logits=True)
    scores = np.concatenate([record.scores for record in spy.records])
    flags = np.concatenate([record.replay for record in spy.records])
    codes = np.concatenate([record.codes for record in spy.records])
    logits = np.concatenate([record.logits for record in spy.records])
    units = bundle.manifest.tas_unit
    assert spy.records[0].first == LAYOUT.prompt_length - 1
    for frame in range(FRAMES):
        for place in range(PLACES):
            predicts = frame * PLACES + place
            assert run.codes[0, frame, place] == codes[predicts, 0]
            np.testing.assert_array_equal(run.logits[0, frame, place], logits[predicts, 0])
            reads = predicts + 1
            if reads == FRAMES * PLACES:
                assert np.isnan(run.tas[frame, place]).all() and not run.replay[frame, place].any()
                continue
            np.testing.assert_array_equal(run.replay[frame, place], flags[reads])
            if frame == 0:
                assert np.isnan(run.tas[frame, place]).all() and not run.replay[frame, place].any()
            else:
                expected = (scores[reads] * np.array(units)[:, None]).astype(np.float32)
                np.testing.assert_array_equal(run.tas[frame, place], expected)


def test_tas_is_missing_exactly_in_frame_0_and_at_the_last_position(bundle: Bundle, backend: Backend):
    run = generate(bundle, ["left turn", "slow"], seed=4, replay=EVERYTHING, backend=backend)
    missing = np.zeros((FRAMES, PLACES), bool)
    missing[0] = missing[-1, -1] = True
    np.testing.assert_array_equal(np.isnan(run.tas), np.broadcast_to(missing[..., None, None], run.tas.shape))
    np.testing.assert_array_equal(run.replay, np.broadcast_to(~missing[..., None, None], run.replay.shape))
    assert run.eligible_replay_ratio == 1.0
    assert run.steps == FRAMES * PLACES - 1
    assert run.replay_ratio == (run.steps - PLACES) / run.steps


def test_tas_decides_what_replays(bundle: Bundle, backend: Backend):
    run = generate(bundle, "left turn", seed=4, replay=SOME, backend=backend)
    eligible = ~np.isnan(run.tas)
    np.testing.assert_array_equal(run.replay[eligible], run.tas[eligible] > -0.6)
    assert run.thresholds == (-0.6, -0.6)


def test_a_layer_without_threshold_never_replays(bundle: Bundle, backend: Backend):
    run = generate(bundle, "left turn", replay=ReplaySettings((None, float("-inf"))), backend=backend)
    assert not run.replay[:, :, 0].any()
    assert run.replay[1:-1, :, 1].all()


@pytest.mark.parametrize("max_age", [1, 2])
def test_a_value_is_replayed_at_most_max_age_times(bundle: Bundle, backend: Backend, max_age: int):
    replay = ReplaySettings((float("-inf"),) * LAYERS, max_age=max_age)
    run = generate(bundle, "left turn", replay=replay, backend=backend)
    expected = np.arange(FRAMES) % (max_age + 1) != 0
    np.testing.assert_array_equal(run.replay[:, 0], np.broadcast_to(expected[:, None, None], run.replay[:, 0].shape))


@pytest.mark.parametrize(("policy", "threshold"), [("mean", 0.0), ("all", -0.6)])
def test_rows_that_decide_together_agree(bundle: Bundle, backend: Backend, policy: str, threshold: float):
    replay = ReplaySettings((threshold,) * LAYERS, policy)
    run = generate(bundle, ["left turn", "slow"], seed=1, replay=replay, backend=backend)
    assert 0 < run.eligible_replay_ratio < 1
    assert (run.replay == run.replay[..., :1]).all()
    scores = run.tas[1:].astype(np.float64)
    pooled = scores.mean(axis=-1) if policy == "mean" else scores.min(axis=-1)
    clear = np.abs(pooled - threshold) > 1e-4
    np.testing.assert_array_equal(run.replay[1:, :, :, 0][clear], pooled[clear] > threshold)


def test_logits_are_kept_only_on_request(bundle: Bundle, backend: Backend):
    assert generate(bundle, "slow", frames=1, backend=backend).logits is None
    kept = generate(bundle, ["slow", "braking"], frames=2, backend=backend, record_logits=True).logits
    assert kept.shape == (2, 2, PLACES, LAYOUT.codes)


def test_greedy_takes_the_largest_logit(bundle: Bundle, backend: Backend):
    greedy = SamplingSettings(temperature=0, guidance=2.0)
    run = generate(bundle, "slow", frames=2, sampling=greedy, backend=backend, record_logits=True)
    np.testing.assert_array_equal(run.codes, run.logits.argmax(axis=-1))
    other = generate(bundle, "slow", frames=2, sampling=greedy, seed=77, backend=backend)
    np.testing.assert_array_equal(run.codes, other.codes)


def test_frames_are_handed_over_as_they_are_finished(bundle: Bundle, backend: Backend):
    seen: list[tuple[int, np.ndarray]] = []
    run = generate(
        bundle, ["slow", "braking"], backend=backend, on_frame=lambda frame, codes: seen.append((frame, codes))
    )
    assert [frame for frame, _ in seen] == list(range(FRAMES))
    for frame, codes in seen:
        assert codes.shape == (2, *LAYOUT.grid)
        np.testing.assert_array_equal(codes.reshape(2, PLACES), run.codes[:, frame])


@pytest.mark.parametrize("where", ["decode", "on_frame"])
def test_an_interrupted_run_keeps_its_finished_frames(bundle: Bundle, backend: Backend, where: str):
    whole = generate(bundle, "left turn", seed=4, replay=EVERYTHING, backend=backend)

    def stop(frame: int, codes: np.ndarray) -> None:
        if frame == 1:
            raise KeyboardInterrupt

    spy = Spy(backend, fail_at=2 if where == "decode" else None)
    options = {"on_frame": stop} if where == "on_frame" else {}
    kept = generate(bundle, "left turn", seed=4, replay=EVERYTHING, backend=spy, **options)
    assert kept.interrupted and not whole.interrupted
    assert kept.codes.shape == (1, 2, PLACES) and len(kept.seconds) == 2
    np.testing.assert_array_equal(kept.codes, whole.codes[:, :2])
    assert np.isnan(kept.tas[-1, -1]).all() and not kept.replay[-1, -1].any()
    np.testing.assert_array_equal(kept.replay[1, :-1], whole.replay[1, :-1])


def test_interrupted_before_the_first_frame_is_raised(bundle: Bundle, backend: Backend):
    with pytest.raises(KeyboardInterrupt):
        generate(bundle, "left turn", backend=Spy(backend, fail_at=0))


def test_counters_agree_with_the_record(bundle: Bundle, backend: Backend):
    spy = Spy(backend)
    run = generate(bundle, "left turn", replay=EVERYTHING, backend=spy)
    assert spy.counters() == {"steps": LAYOUT.positions - 1, "replayed": int(run.replay.sum())}


def test_a_single_frame_has_nothing_eligible(bundle: Bundle, backend: Backend):
    run = generate(bundle, "left turn", frames=1, replay=EVERYTHING, backend=backend)
    assert run.replay_ratio == 0 and np.isnan(run.eligible_replay_ratio)
    assert run.steps_per_second > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"prompt": []}, "prompts: none"),
        ({"prompt": ""}, "--prompt: an empty prompt"),
        ({"prompt": ["slow", "  "]}, "--prompt: an empty prompt"),
        ({"prompt": "lft turn"}, "unknown word 'lft'.*braking.*Did you mean 'left'"),
        ({"prompt": "left left left left"}, "4 words; expected at most 3"),
        ({"frames": 0}, "--frames: 0; expected 1 to 5.*at least one"),
        ({"frames": -1}, "--frames: -1.*at least one"),
        ({"frames": 6}, "--frames: 6.*fewer"),
        ({"seed": -1}, "--seed: -1"),
        ({"seed": 1 << 64}, "--seed"),
        ({"replay": ReplaySettings((0.0,))}, "1 values; expected 1 or 2"),
        ({"backend": "cuda"}, "--backend: 'cuda'; expected one of onnxruntime, reference"),
    ],
)
def test_bad_arguments_are_refused_before_any_work(bundle: Bundle, backend: Backend, arguments: dict, message: str):
    spy = Spy(backend, fail_at=0)
    with pytest.raises(UsageError, match=message):
        generate(bundle, **{"prompt": "slow", "backend": spy, **arguments})
    assert spy.prefilled is None


@pytest.mark.parametrize("seed", [1.5, "1", None])
def test_a_seed_that_is_no_integer_is_refused(bundle: Bundle, backend: Backend, seed: object):
    with pytest.raises(TypeError):
        generate(bundle, "slow", seed=seed, backend=backend)


def test_the_uniform_stream_is_pinned():
    """Never to change, or old seeds give other videos."""
    assert uniforms(0, 2, 6).tolist() == [
        [193722, 13645816],
        [4052523, 12605249],
        [1869415, 11268401],
        [9469306, 8105475],
        [8428531, 11831212],
        [4657448, 4581406],
    ]
    assert uniforms(2**64 - 1, 1, 3).ravel().tolist() == [3941665, 12034477, 6898410]


def philox(counter: int, key: tuple[int, int]) -> list[int]:
    """Philox-4x64-10 written from the paper (Salmon et al., SC11): four 64-bit words."""
    c, k, mask = [counter, 0, 0, 0], list(key), (1 << 64) - 1
    for _ in range(10):
        high, low = (factor * word for factor, word in ((0xCA5A826395121157, c[2]), (0xD2E7470EE14C6C93, c[0])))
        c = [(high >> 64) ^ c[1] ^ k[0], high & mask, (low >> 64) ^ c[3] ^ k[1], low & mask]
        k = [(k[0] + 0x9E3779B97F4A7C15) & mask, (k[1] + 0xBB67AE8584CAA73B) & mask]
    return c


@pytest.mark.parametrize("seed", [0, 12345, 2**64 - 1])
def test_uniforms_are_the_upper_bits_of_philox(seed: int):
    """The counter starts at 1."""
    for clip in range(2):
        words = [word >> 40 for counter in range(1, 4) for word in philox(counter, (seed, clip))]
        assert uniforms(seed, 2, 12)[:, clip].tolist() == words


@pytest.mark.parametrize("seed", [0, 1, 2**32, 2**63, 2**64 - 1])
def test_uniforms_fill_24_bits_for_every_seed(seed: int):
    draws = uniforms(seed, 3, 4000)
    assert draws.shape == (4000, 3) and draws.dtype == np.int64
    assert draws.min() >= 0 and draws.max() < 1 << 24
    assert np.abs(draws.mean(axis=0) / 2**24 - 0.5).max() < 0.03
    assert len({column.tobytes() for column in draws.T}) == 3
    np.testing.assert_array_equal(uniforms(seed, 1, 10), draws[:10, :1])


def test_a_folder_is_opened(bundle: Bundle, backend: Backend):
    one, other = (generate(way, "slow", frames=1, backend=backend) for way in (bundle, str(bundle.path)))
    assert (one.codes == other.codes).all()
