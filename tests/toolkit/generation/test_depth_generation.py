"""Clips of several codes a position, from a bundle to its report."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from car_like import copy_of, rehash
from cli_runs import run as command
from depth_bundle import SAMPLING, depth_bundle
from pydantic import ValidationError
from random_models import CODES, GUIDED
from safetensors.numpy import load_file, save_file

from fastcar.toolkit.backends.golden import check_golden
from fastcar.toolkit.backends.registry import open_backend
from fastcar.toolkit.bundle.bundle import DEPTH, GOLDEN, WEIGHTS, Bundle
from fastcar.toolkit.bundle.manifest import Manifest
from fastcar.toolkit.bundle.tensor_file import stored_tensors
from fastcar.toolkit.cli.clip import view_of
from fastcar.toolkit.errors import BundleError, UsageError
from fastcar.toolkit.evaluation.metrics import code_agreement
from fastcar.toolkit.generation.agreement import Recorder, first_difference
from fastcar.toolkit.generation.run import generate, uniforms
from fastcar.toolkit.generation.score import cross_entropy
from fastcar.toolkit.planner.program import shape_program
from fastcar.toolkit.planner.shapes import load_shape
from fastcar.toolkit.settings import ReplaySettings, SamplingSettings

SOME = ReplaySettings((0.0, 0.0, 0.0))
DEPTH_CODES = 3


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return depth_bundle(tmp_path_factory.mktemp("bundle") / "depth", bits=4)


@pytest.fixture
def copy(bundle: Bundle, tmp_path: Path) -> Path:
    return copy_of(bundle.path, tmp_path / "copy")


def test_both_back_ends_generate_the_same_clip(bundle: Bundle):
    runs = {}
    for name in ("reference", "onnxruntime"):
        runs[name] = generate(bundle, ["a", "b a"], seed=3, replay=SOME, backend=name, record_logits=True)
    found, expected = runs.values()
    assert found.codes.shape == (2, 4, 6, DEPTH_CODES) and found.logits.shape == (2, 4, 6, DEPTH_CODES, CODES)
    for name in ("codes", "tas", "replay", "logits"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), name)
    assert 0 < found.replay_ratio < 1
    assert len(np.unique(found.codes)) > 20 and (found.codes[0] != found.codes[1]).any()


def test_a_position_of_a_given_frame_depends_on_the_seed_alone(bundle: Bundle):
    long, short = (generate(bundle, "a", seed=5, frames=frames) for frames in (3, 1))
    np.testing.assert_array_equal(long.codes[:, :1], short.codes)
    assert code_agreement(generate(bundle, "a", seed=6, frames=1).codes, short.codes) < 0.5


def test_frames_are_told_by_their_codes(bundle: Bundle):
    told = {}
    run = generate(bundle, ["a", "b"], frames=2, on_frame=lambda frame, codes: told.update({frame: codes}))
    assert [codes.shape for codes in told.values()] == [(2, 2, 3, DEPTH_CODES)] * 2
    np.testing.assert_array_equal(np.stack(list(told.values()), axis=1).reshape(run.codes.shape), run.codes)
    view = view_of(bundle, run)
    grey = run.codes.astype(np.int64).sum(axis=-1) * 255 // (DEPTH_CODES * CODES)
    np.testing.assert_array_equal(view.frames[..., 0].reshape(grey.shape), grey)


def test_draws_of_one_code_are_those_of_a_model_without_depth():
    np.testing.assert_array_equal(uniforms(7, 2, 10, 1)[..., 0], uniforms(7, 2, 10))
    several = uniforms(7, 2, 5, 4)
    assert several.shape == (5, 2, 4)
    np.testing.assert_array_equal(several.swapaxes(0, 1).reshape(2, 20), uniforms(7, 2, 20).T)


def test_cross_entropy_is_that_of_the_logits_it_was_sampled_from(bundle: Bundle):
    run = generate(bundle, "a", frames=2, sampling=SamplingSettings(), record_logits=True, backend="reference")
    logits = run.logits[0].reshape(-1, CODES).astype(np.float64)
    log_p = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    expected = -log_p[np.arange(len(logits)), run.codes.reshape(-1)].mean()
    prompt = bundle.prompts.encode("a", 3)[None]
    codes = run.codes.reshape(1, 12, DEPTH_CODES).astype(np.int64)
    seen = []
    found = cross_entropy(open_backend("onnxruntime", bundle), prompt, lambda *at: seen.append(at), codes)
    assert found == pytest.approx(expected, rel=1e-12) and seen[-1] == (14, 14)
    with pytest.raises(ValueError, match="expected with a depth transformer"):
        cross_entropy(open_backend("reference", bundle), np.zeros((1, 5), np.int64))


def test_the_golden_clip_is_checked_with_all_codes(bundle: Bundle, copy: Path):
    assert check_golden(open_backend("onnxruntime", bundle), bundle.path / GOLDEN) == 12
    clip = load_file(copy / GOLDEN)
    assert clip["codes"].shape == (12, 1, DEPTH_CODES)
    clip["codes"][1, 0, 2] += 1
    save_file(clip, copy / GOLDEN)
    rehash(copy, GOLDEN)
    with pytest.raises(BundleError, match="onnxruntime computes codes .* at step 1, clip 0, depth 2"):
        open_backend("onnxruntime", Bundle.open(copy))


def test_a_code_is_told_before_the_logits_that_follow_from_it(bundle: Bundle, copy: Path):
    clip = load_file(copy / GOLDEN)
    clip["codes"][1, 0, 1] += 1
    clip["logits"][1, 0, 2] += 1
    save_file(clip, copy / GOLDEN)
    with pytest.raises(BundleError, match="codes .* at step 1, clip 0, depth 1;"):
        check_golden(open_backend("reference", bundle), copy / GOLDEN)
    clip["logits"][1, 0, 1, 4] += 1
    save_file(clip, copy / GOLDEN)
    with pytest.raises(BundleError, match="logits .* at step 1, clip 0, depth 1, code 4;"):
        check_golden(open_backend("reference", bundle), copy / GOLDEN)


class OtherCode:
    """A back end whose sampling of residual code 1 of the third step is wrong, and all that follows from it."""

    def __init__(self, backend):
        self.backend, self.original, self.calls = backend, backend.run_depth, 0
        backend.run_depth = self.run_depth

    def run_depth(self, hidden: np.ndarray) -> dict[str, np.ndarray]:
        made, self.calls = self.original(hidden), self.calls + 1
        if self.calls % 6 != 3:
            return made
        given = self.backend.sampling["given"]
        given[0, 1] = (made["code"][0, 1] + 1) % CODES
        other = self.original(hidden)
        given[:] = -1
        return other


def test_a_wrong_code_is_told_as_such(bundle: Bundle):
    recorders = [Recorder(open_backend(name, bundle)) for name in ("onnxruntime", "reference")]
    OtherCode(recorders[0].backend)
    for recorder in recorders:
        generate(bundle, "a", frames=1, backend=recorder)
    recorders[0].backend.run_depth.__self__.calls = 0
    difference = first_difference(*recorders)
    assert (difference.node, difference.index, difference.position) == ("Sample", (0, 1), 4)
    assert difference.found == (difference.expected + 1) % CODES


def test_a_difference_of_the_depth_transformer_is_located(bundle: Bundle):
    recorders = [Recorder(open_backend(name, bundle)) for name in ("onnxruntime", "reference")]
    weights = recorders[1].backend.model.depth
    weights.classifier.bias[5] += 1
    for recorder in recorders:
        generate(bundle, "a", frames=1, backend=recorder)
    difference = first_difference(*recorders)
    assert difference.node.startswith("QuantLinear") and difference.index == (0, 0, 5) and difference.layer is None


def test_what_the_planner_knows_of_the_bundle(bundle: Bundle):
    """All that a program needs; of this model there is none, for its heads are no multiples of a beat."""
    shape = load_shape(bundle.path)
    assert (shape.depth, shape.backbone) == (bundle.manifest.depth, bundle.manifest.config)
    assert shape.depth.codes_per_position == DEPTH_CODES and shape.frame_layout.codes == CODES
    with pytest.raises(UsageError, match="depth: head_dim of the depth transformer 8; expected a multiple of 16"):
        shape_program(shape, "w8a8")


def test_inspect_tells_of_the_depth_transformer(bundle: Bundle):
    facts = json.loads(command("inspect", bundle.path, "--json").stdout)
    assert facts["depth"] == bundle.manifest.depth.model_dump()
    stored = stored_tensors(bundle.path / WEIGHTS)
    for name in ("depth.blocks.1.fc1", "depth.classifier", "projector.0"):
        expected = sum(stored[f"{name}.{x}"].length for x in ("weight", "scale", "bias"))
        expected += stored[f"{name}.multiplier"].length if f"{name}.multiplier" in stored else 0
        assert facts["linear_layers"][name]["bytes"] == expected
    assert "3 codes a position" in command("inspect", bundle.path).stdout


def test_the_command_line_compares_with_dense_and_reports(bundle: Bundle, tmp_path: Path):
    options = ("--frames", 2, "--threshold", 0, "--compare", "--out", tmp_path / "out", "--json")
    outcome = command("generate", bundle.path, "--prompt", "a", *options)
    assert outcome.code == 0, outcome.stderr
    record = load_file(next((tmp_path / "out").glob("*.safetensors")))
    expected = generate(bundle, "a", frames=2, replay=ReplaySettings((0.0, 0.0, 0.0)))
    np.testing.assert_array_equal(record["codes"], expected.codes)
    assert next((tmp_path / "out").glob("*.html")).stat().st_size > 10_000


def test_a_bundle_without_its_depth_graph_is_refused(copy: Path):
    manifest = Manifest.read(copy / "manifest.json")
    files = {name: entry for name, entry in manifest.files.items() if name != DEPTH}
    manifest.model_copy(update={"files": files}).write(copy / "manifest.json")
    with pytest.raises(BundleError, match=r"no entry for depth\.onnx"):
        Bundle.open(copy)


def test_codes_need_be_no_vocabulary_only_with_a_depth_transformer(bundle: Bundle):
    fields = bundle.manifest.model_dump(by_alias=True)
    assert bundle.manifest.config.vocab == 7 and bundle.manifest.sampling == SAMPLING != GUIDED
    with pytest.raises(ValidationError, match="codes up to 44, beyond the vocabulary of 7"):
        Manifest(**{**fields, "depth": None})
