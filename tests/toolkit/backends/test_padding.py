"""Prompts of different lengths, padded in front: every back end computes the same bits, and none looks at the padding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import random_models
from broken_engine import build_mutant
from random_models import (
    GUIDED,
    UNGUIDED,
    Run,
    assert_same_bits,
    depth_config,
    generate_clip,
    layout,
    median_thresholds,
    onnx_backend,
    random_depth_model,
    random_model,
    reference_backend,
    save_graph,
)
from small_engine import deep_engine

from fastcar.export.overlay.compile import pack_model
from fastcar.hls.library import EngineLibrary, SimulationError
from fastcar.toolkit.backends.csim import CSimBackend
from fastcar.toolkit.config import PADDING
from fastcar.toolkit.errors import UsageError
from fastcar.toolkit.numerics.weights import IntegerModel
from fastcar.toolkit.settings import AttentionSettings, ReplaySettings

PROMPT = 37  # three blocks of slots
FRAMES = layout(prompt_length=PROMPT, frames=4, grid=(3, 5))
SHAPE = random_models.config(hidden=48, heads=6, kv_heads=2, head_dim=16, mlp=56)
DEPTH = depth_config(hidden=48, heads=3, mlp=48, codes_per_position=2, code_dim=16)
ENGINE = deep_engine()
FOUR_ROWS = (0, 36, 17, 5)  # the second one reads its last token alone

Made = tuple[IntegerModel, Path]


@pytest.fixture(scope="module", params=["one code", "depth transformer"])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Made:
    if request.param == "one code":
        model = random_model(8, shape=SHAPE, frames=FRAMES)
    else:
        model = random_depth_model(8, depth=DEPTH, shape=SHAPE, frames=FRAMES)
    return model, save_graph(model, tmp_path_factory.mktemp("padded"))


def simulation(model: IntegerModel, library: EngineLibrary | None = None) -> CSimBackend:
    depth = model.depth and model.depth.config
    library = library or EngineLibrary(ENGINE)
    return CSimBackend(library, pack_model(model, ENGINE), model.config, model.layout, depth=depth)


def replaying(model: IntegerModel, run: Run) -> Run:
    dense = generate_clip(reference_backend(model), run)
    return replace(run, thresholds=median_thresholds(dense.scores, model.layout))


@pytest.mark.parametrize(
    ("attention", "run"),
    [
        (AttentionSettings(), Run(clips=2, padding=FOUR_ROWS)),
        (AttentionSettings(), Run(sampling=UNGUIDED, padding=(36,))),
        (AttentionSettings(0, 9), Run(clips=2, padding=FOUR_ROWS)),
        (AttentionSettings(4, 9), Run(clips=4, sampling=UNGUIDED, padding=FOUR_ROWS)),
        (AttentionSettings(19, 16), Run(clips=2, padding=(33, 0, 16, 32))),  # sinks begin and end in any block
        (AttentionSettings(25, 1), Run(clips=2, padding=FOUR_ROWS, sampling=GUIDED, seed=4)),  # they reach into frames
        (AttentionSettings(0, 6, 3), Run(clips=2, padding=FOUR_ROWS)),
        (
            AttentionSettings(20, 3, 2),
            Run(clips=2, padding=(0, 17, 1, 16)),
        ),  # the longest padding's end with the prompt
        (AttentionSettings(0, 40, 2), Run(padding=(8, 30))),
    ],
    ids=str,
)
def test_the_same_bits(made: Made, attention: AttentionSettings, run: Run) -> None:
    """Dense and with half of the eligible evaluations replayed."""
    model, path = made
    run = replace(run, attention=attention)
    padded, replays = generate_clip(reference_backend(model), run), replaying(model, run)
    assert_same_bits(generate_clip(simulation(model), run), padded)
    expected = generate_clip(reference_backend(model), replays)
    assert 0.05 < expected.replay.mean() < 0.8
    for backend in (onnx_backend(model, path), simulation(model)):
        assert_same_bits(generate_clip(backend, replays), expected)
    without = generate_clip(reference_backend(model), replace(run, padding=()))
    assert (without.logits != padded.logits).any(), "padding made a difference"


def prompts(rows: int, padding: tuple[int, ...]) -> np.ndarray:
    tokens = np.random.default_rng(1).integers(0, 7, (rows, PROMPT))
    for row, count in enumerate(padding):
        tokens[row, :count] = PADDING
    return tokens


def results(model: IntegerModel, ask: Callable, attention: AttentionSettings = AttentionSettings()) -> list[np.ndarray]:
    found = []
    for backend in (simulation(model), reference_backend(model)):
        backend.start(2, FRAMES.positions, GUIDED, ReplaySettings(), attention)
        found.append(ask(backend))
    return found


@pytest.mark.parametrize("attention", [AttentionSettings(), AttentionSettings(3, 7)], ids=str)
def test_a_prompt_in_pieces(made: Made, attention: AttentionSettings) -> None:
    """Padding goes on where the piece before ended with it; it may be read one position a time."""
    model, _ = made
    tokens, none = prompts(4, FOUR_ROWS), Run().limits(model.config.layers)
    uniforms = np.zeros((3, 2, 2) if model.depth else (3, 2), np.int64)

    def ask(pieces: list[int]) -> Callable:
        def asked(backend) -> np.ndarray:
            for first, end in zip(pieces, pieces[1:], strict=False):
                if end == first + 1:
                    backend.decode(tokens[:, first], uniforms[:1], none)
                else:
                    backend.prefill(tokens[:, first:end])
            return backend.decode(tokens[:, -1], uniforms, none).logits

        return asked

    whole = results(model, ask([0, PROMPT - 1]), attention)
    for pieces in ([0, 3, 4, 5, 6, 17, 20, 36], [0, 1, 2, 36]):
        for found in results(model, ask(pieces), attention):
            for expected in whole:
                np.testing.assert_array_equal(found, expected)


def test_scores_of_a_padded_text(made: Made) -> None:
    model, _ = made
    tokens = prompts(4, FOUR_ROWS)
    following = np.random.default_rng(2).integers(0, 37, (2, PROMPT, 2)) if model.depth else None
    np.testing.assert_array_equal(*results(model, lambda backend: backend.score(tokens, following)))


def test_padding_of_a_clip_is_forgotten_with_it(made: Made) -> None:
    model, _ = made
    backend, run = simulation(model), Run(clips=2)
    generate_clip(backend, replace(run, padding=FOUR_ROWS))
    assert_same_bits(generate_clip(backend, run), generate_clip(reference_backend(model), run))


def test_which_columns_are_refused(made: Made) -> None:
    """Behind the most padding, sinks that end with the prompt are taken, one more is not; without columns any are."""
    model, _ = made
    backend = simulation(model)
    padded, whole = prompts(4, (0, 17, 1, 16)), prompts(4, ())
    for tokens, attention in [
        (padded, AttentionSettings(PROMPT - 17, 3, 2)),
        (padded, AttentionSettings(PROMPT, 3)),
        (whole, AttentionSettings(PROMPT + 9, 3, 2)),
    ]:
        backend.start(2, FRAMES.positions, GUIDED, ReplaySettings(), attention)
        backend.prefill(tokens[:, :-1])
    backend.start(2, FRAMES.positions, GUIDED, ReplaySettings(), AttentionSettings(PROMPT - 16, 3, 2))
    with pytest.raises(UsageError, match="21 sinks behind 17 positions of padding, with columns; expected at most 20"):
        backend.prefill(padded[:, :-1])


@pytest.mark.parametrize(
    ("before", "after"),
    [("slot >= row_begin && ", ""), ("row_sinks_end = end_of_sinks(padding)", "row_sinks_end = end_of_sinks(0)")],
    ids=["padding is seen", "sinks from slot 0"],
)
def test_a_broken_engine_is_noticed(made: Made, tmp_path: Path, before: str, after: str) -> None:
    model, _ = made
    library = EngineLibrary(ENGINE, build_mutant(tmp_path, ENGINE, "visible.h", before, after))
    run = Run(clips=2, padding=FOUR_ROWS, attention=AttentionSettings(4, 9))
    expected = generate_clip(reference_backend(model), run, frames=1)
    with pytest.raises((AssertionError, SimulationError)):
        assert_same_bits(generate_clip(simulation(model, library), run, frames=1), expected)
