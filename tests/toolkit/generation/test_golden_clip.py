"""The golden clip finds a back end, or a bundle, that computes anything else, and says where."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from car_like import BACKBONE, LAYOUT, copy_of, rehash
from safetensors.numpy import load_file

from fastcar.toolkit.backends import golden
from fastcar.toolkit.backends.golden import START_STEPS, check_golden
from fastcar.toolkit.backends.registry import open_backend
from fastcar.toolkit.bundle.bundle import GOLDEN, WEIGHTS, Bundle
from fastcar.toolkit.bundle.tensor_file import write_tensors
from fastcar.toolkit.errors import BundleError
from fastcar.toolkit.generation.run import generate

STEPS = 2 * LAYOUT.tokens_per_frame  # frame 0, and as many of frame 1 as there are, up to eight


@pytest.fixture
def copy(bundle_w8a8: Path, tmp_path: Path) -> Path:
    return copy_of(bundle_w8a8, tmp_path / "copy")


def corrupt(path: Path, name: str, index: tuple[int, ...], change: float) -> None:
    tensors = load_file(path)
    tensors[name][index] = tensors[name][index] + change if change else ~tensors[name][index]
    write_tensors(path, tensors)  # in the order of a bundle's weights, which the graph counts on


@pytest.mark.parametrize("recipe", ["w8a8", "w4a8"])
@pytest.mark.parametrize("name", ["onnxruntime", "reference"])
def test_every_back_end_passes(recipe: str, name: str, request: pytest.FixtureRequest):
    bundle = Bundle.open(request.getfixturevalue(f"bundle_{recipe}"))
    backend = open_backend(name, bundle)
    assert check_golden(backend, bundle.path / GOLDEN) == STEPS
    assert check_golden(backend, bundle.path / GOLDEN, 3) == 3
    assert check_golden(backend, bundle.path / GOLDEN, 1000) == STEPS


def test_the_clip_holds_both_ways_of_a_layer(bundle_w8a8: Path):
    clip = load_file(bundle_w8a8 / GOLDEN)
    assert clip["replay"].shape == (STEPS, BACKBONE.layers, 2)
    eligible = clip["replay"][LAYOUT.tokens_per_frame + 1 :]
    assert eligible[:, 1].all() and not eligible[:, 0].any()
    assert not clip["replay"][: LAYOUT.tokens_per_frame + 1].any()
    assert len(np.unique(clip["codes"])) > 3


@pytest.mark.parametrize(
    ("name", "index", "change", "place"),
    [
        ("scores", (9, 1, 0), 1, "scores -?\\d+ at step 9, layer 1, row 0"),
        ("replay", (8, 0, 1), 0, "replay False at step 8, layer 0, row 1"),
        ("logits", (5, 0, 7), 0.5, "logits .* at step 5, clip 0, code 7"),
        ("codes", (0, 0), 1, "codes \\d+ at step 0, clip 0"),
    ],
)
def test_a_corrupted_value_is_located(copy: Path, name: str, index: tuple[int, ...], change: float, place: str):
    bundle = Bundle.open(copy)
    corrupt(copy / GOLDEN, name, index, change)
    with pytest.raises(
        BundleError, match=rf"clip\.safetensors: reference computes {place}; expected .* as the reference"
    ):
        check_golden(open_backend("reference", bundle), copy / GOLDEN)


def test_the_first_difference_of_a_step_is_told(copy: Path):
    """Not the first in the order of the file: what a step computes earlier explains what it computes later."""
    corrupt(copy / GOLDEN, "codes", (4, 0), 1)
    corrupt(copy / GOLDEN, "scores", (4, 1, 1), 1)
    corrupt(copy / GOLDEN, "logits", (6, 0, 0), 1)
    with pytest.raises(BundleError, match="scores .* at step 4, layer 1, row 1"):
        check_golden(open_backend("reference", Bundle.open(copy, verify=False)), copy / GOLDEN)


def test_the_start_is_compared_before_anything_is_generated(copy: Path):
    corrupt(copy / GOLDEN, "logits", (START_STEPS - 1, 0, 0), 1)
    rehash(copy, GOLDEN)
    with pytest.raises(BundleError, match=f"onnxruntime computes logits .* at step {START_STEPS - 1}, clip 0, code 0"):
        generate(Bundle.open(copy), "slow")
    generate(Bundle.open(copy), "slow", frames=1, backend="reference")


@pytest.mark.parametrize("layer", [0, 1])
def test_a_forged_weight_is_found_at_its_layer(copy: Path, layer: int):
    tensors = load_file(copy / WEIGHTS)
    weight = tensors[f"layers.{layer}.qkv.weight"]
    weight[:] = np.random.default_rng(0).permutation(weight.reshape(-1)).reshape(weight.shape)
    write_tensors(copy / WEIGHTS, tensors)
    rehash(copy, WEIGHTS)
    bundle = Bundle.open(copy)
    with pytest.raises(BundleError, match=rf"onnxruntime computes scores -?\d+ at step 0, layer {layer}, row 0"):
        open_backend("onnxruntime", bundle)


def test_the_short_clip_of_a_large_model(bundle_w8a8: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The prompts' last tokens alone, of rows that differ there: what is stored is what was run."""
    monkeypatch.setattr(golden, "SHORTENED_FROM", 0)
    bundle = Bundle.open(bundle_w8a8)
    tokens = np.arange(2 * LAYOUT.prompt_length).reshape(2, -1) % LAYOUT.code_offset
    path = tmp_path / "clip.safetensors"
    golden.record_golden(open_backend("reference", bundle), tokens, path)
    stored = load_file(path)["tokens"]
    assert np.array_equal(stored, tokens[:, -golden.SHORT_PROMPT :]) and not np.array_equal(*stored)
    assert check_golden(open_backend("onnxruntime", bundle), path) == golden.SHORT_STEPS
