"""Bundles with a depth transformer on the emulated device, through the real pynq package, and what a board needs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import random_models
from cli_runs import run
from depth_bundle import SAMPLING, depth_bundle
from packed_bundle import packed_copy
from random_models import depth_config
from safetensors.numpy import load_file
from small_engine import deep_engine, small_engine
from strong_weights import strengthened

from fastcar.boards import load_board
from fastcar.export.pipeline import export_model
from fastcar.export.vila_u.synthetic import write_checkpoint
from fastcar.overlays import Engine
from fastcar.toolkit.backends.pynq import PynqBackend
from fastcar.toolkit.backends.registry import DeviceChoice, open_backend
from fastcar.toolkit.board.fit import clip_memory, engines_for, fit_bundle
from fastcar.toolkit.bundle.bundle import Bundle
from fastcar.toolkit.config import PADDING
from fastcar.toolkit.errors import BundleError, UsageError
from fastcar.toolkit.generation.run import Generation, generate
from fastcar.toolkit.program.memory import BEAT_BYTES
from fastcar.toolkit.settings import AttentionSettings, ReplaySettings

ENGINE = deep_engine()
SHAPE = random_models.config(hidden=48, layers=2, heads=6, kv_heads=2, head_dim=16, mlp=56)
DEPTH = depth_config(hidden=64, heads=4, mlp=80, code_dim=32)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return depth_bundle(tmp_path_factory.mktemp("packed") / "deep", DEPTH, shape=SHAPE, engine=ENGINE)


@pytest.fixture(scope="module", params=["w8a8", "w4a8"])
def vila_u(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """Exported from a checkpoint, with a tokenizer: prompts of any length, padded in front."""
    folder = tmp_path_factory.mktemp("vila-u")
    write_checkpoint(folder / "tiny", "tiny", shared=False)
    for part in ("llm", "vision_tower", "mm_projector"):
        strengthened(folder / "tiny" / part)
    made = export_model(folder / "tiny", folder / "plain", recipe=request.param, evaluate=False)
    return Bundle.open(packed_copy(made.path, folder / "packed", Engine(board="kv260", config=ENGINE)))


@pytest.fixture
def device(bundle: Bundle) -> Iterator[PynqBackend]:
    with closing(open_backend("pynq", bundle, device=DeviceChoice("emulated"))) as backend:
        yield backend


def clip(bundle: Bundle, backend: object, prompt: str | list[str] = "a b", **settings: object) -> Generation:
    replay = ReplaySettings.uniform(0.0, bundle.manifest.config.layers)
    settings = {"frames": 3, "seed": 1, "replay": replay, "sampling": SAMPLING, "record_logits": True} | settings
    return generate(bundle, prompt, backend=backend, **settings)


def assert_equal(found: Generation, expected: Generation) -> None:
    for name in ("codes", "replay", "logits", "tas"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


def test_bits_of_onnxruntime_and_equal_again(bundle: Bundle, device: PynqBackend) -> None:
    expected = clip(bundle, "onnxruntime")
    assert expected.codes.shape[-1] == 3 and expected.replay.any() and not expected.replay.all()
    for _ in range(2):
        assert_equal(clip(bundle, device), expected)
    device.verify_memory()


def test_a_window_with_columns_and_two_clips(bundle: Bundle, device: PynqBackend) -> None:
    settings = {"prompt": ["a", "b a"], "attention": AttentionSettings(2, 5, 2)}
    assert_equal(clip(bundle, device, **settings), clip(bundle, "onnxruntime", **settings))


@pytest.mark.parametrize(
    "attention", [AttentionSettings(), AttentionSettings(3, 9), AttentionSettings(0, 9, 1)], ids=str
)
def test_prompts_with_padding(vila_u: Bundle, attention: AttentionSettings) -> None:
    prompts, length = ["a red car", "zebras in a very wide field"], vila_u.manifest.frame_layout.prompt_length
    rows = [vila_u.prompts.encode(prompt, length) for prompt in prompts]
    assert len({int((row == PADDING).sum()) for row in [*rows, vila_u.prompts.unconditional(length)]}) == 3
    settings = {"prompt": prompts, "attention": attention, "sampling": vila_u.manifest.sampling}
    expected = clip(vila_u, "onnxruntime", **settings)
    assert_equal(clip(vila_u, "csim", **settings), expected)
    with closing(open_backend("pynq", vila_u, device=DeviceChoice("emulated"))) as backend:
        assert_equal(clip(vila_u, backend, **settings), expected)


def test_self_test_of_an_exported_bundle(vila_u: Bundle) -> None:
    for more in ([], ["--backend", "pynq", "--device", "emulated"]):
        outcome = run("selftest", vila_u.path, *more)
        assert outcome.code == 0, outcome.stderr
        assert "depth.GELU.values" in outcome.stdout and "DIFFERS" not in outcome.stdout
    outcome = run("selftest", vila_u.path, "--backend", "pynq", "--device", "emulated:flip=2")
    assert outcome.code == 1 and "differs: " in outcome.stderr, outcome.stderr


def test_columns_with_sinks_behind_the_padding_are_refused(vila_u: Bundle) -> None:
    """Where a row's sinks would reach into the frames; by the engine alone."""
    attention = AttentionSettings(vila_u.manifest.frame_layout.prompt_length, 9, 1)
    settings = {"attention": attention, "sampling": vila_u.manifest.sampling, "prompt": "a red car", "frames": 1}
    with pytest.raises(UsageError, match="--attention: [0-9]+ sinks behind [0-9]+ positions of padding, with columns"):
        clip(vila_u, "csim", **settings)
    clip(vila_u, "onnxruntime", **settings)


def test_command_line(bundle: Bundle, tmp_path: Path) -> None:
    common = ("--prompt", "a", "--frames", 2, "--threshold", 0)
    for backend, more in (("csim", ()), ("pynq", ("--device", "emulated")), ("onnxruntime", ())):
        outcome = run("generate", bundle.path, *common, "--out", tmp_path / backend, "--backend", backend, *more)
        assert outcome.code == 0, outcome.stderr
    codes = [load_file(tmp_path / name / "run.safetensors")["codes"] for name in ("csim", "pynq", "onnxruntime")]
    assert np.array_equal(codes[0], codes[1]) and np.array_equal(codes[0], codes[2])
    outcome = run("csim", bundle.path, "--prompt", "a", "--frames", 2, "--json")
    assert outcome.code == 0, outcome.stderr
    assert json.loads(outcome.stdout)


def test_which_boards_run_it(bundle: Bundle, tmp_path: Path) -> None:
    """Engines with room for its depth transformer, and no others; memory as the bundle is packed."""
    board = load_board("kv260")
    fit, known = fit_bundle(bundle, board), {engine.config.name: engine.config for engine in engines_for(board)}
    taking = {name for name, config in known.items() if config.depth is not None and config.max_group >= SHAPE.group}
    assert fit.runs and fit.packed_for == "deep" and fit.steps == () and set(fit.engines) == {"deep", *taking}
    assert 0 <= fit.memory.weights - bundle.packed().weights.nbytes < 1 << 12
    wide = depth_bundle(tmp_path / "wide", DEPTH.model_copy(update={"layers": 64}), shape=SHAPE)
    refused = fit_bundle(wide, board)
    assert not refused.runs and len(refused.reasons) == len(known)
    assert all("depth transformer" in reason for reason in refused.reasons)
    plain = depth_bundle(tmp_path / "plain", DEPTH, shape=SHAPE)
    assert clip_memory(plain, ENGINE) == clip_memory(bundle, ENGINE), "planned as it is packed"
    with pytest.raises(UsageError, match="a model with a depth transformer"):
        clip_memory(plain, small_engine())
    with pytest.raises(BundleError, match="not packed for an overlay"):
        open_backend("csim", plain)


def test_memory_holds_the_caches_of_the_depth_transformer(bundle: Bundle, device: PynqBackend) -> None:
    """The plan of a clip is what its start allocates; a clip without logits."""
    layout = bundle.manifest.frame_layout
    device.start(1, layout.positions, SAMPLING, ReplaySettings(), logits=False)
    planned = fit_bundle(bundle, load_board("kv260")).memory.state
    assert 0 <= planned - device.memory.layout.total_beats * BEAT_BYTES < 1 << 12  # whole pages
    assert device.memory.layout.depth_beats > 0
