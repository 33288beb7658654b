"""Checkpoints whose frames have separators, or whose prompts are token sequences: from the files to the clip."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cli_runs import run
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM
from whole_llama import whole_llama

from fastcar import generate
from fastcar.export.huggingface.layout import NAME, read_layout
from fastcar.export.importers import load_model
from fastcar.export.pipeline import export_model
from fastcar.export.quantize.evaluate import cross_entropy as float_cross_entropy
from fastcar.toolkit.backends.onnxruntime import OnnxRuntimeBackend
from fastcar.toolkit.backends.registry import DeviceChoice, open_backend
from fastcar.toolkit.bundle.bundle import BACKBONE, GOLDEN_NODES, TOKENIZER, Bundle
from fastcar.toolkit.bundle.manifest import file_entry
from fastcar.toolkit.errors import BundleError, CheckpointError, UsageError
from fastcar.toolkit.generation.score import cross_entropy, frame_losses
from fastcar.toolkit.planner.shapes import load_shape
from fastcar.toolkit.settings import ReplaySettings

EMU3: dict[str, Any] = {  # a line ends, a frame ends, and here one begins as well
    "name": "lines",
    "frame_layout": {
        "prompt_length": 4, "frames": 3, "grid": [2, 3], "code_offset": 8, "codes": 40,
        "before_frame": [48], "after_row": [49], "after_frame": [51, 5],
    },
    "prompt": {
        "pad": 0, "start": 1, "words": {"left": 2}, "phrases": ["left"], "sequences": {"scene-1": [2, 9, 47, 1]},
    },
    "sampling": {"guidance": 2.0},
}  # fmt: skip
FRAME = [48, -1, -1, -1, 49, -1, -1, -1, 49, 51, 5]
IVIDEOGPT: dict[str, Any] = {  # two context frames of six tokens as the prompt, then a slot token before each frame
    "name": "context",
    "frame_layout": {
        "prompt_length": 14, "frames": 4, "grid": [1, 3], "code_offset": 28, "codes": 20, "before_frame": [48],
    },
    "prompt": {
        "pad": 0, "start": 48, "words": {}, "phrases": [],
        "sequences": {
            "scene-1": [48, 8, 9, 10, 11, 12, 13, 48, 14, 15, 16, 17, 18, 19],
            "scene-2": [48, 20, 21, 22, 23, 24, 25, 48, 26, 27, 8, 8, 8, 9],
        },
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def model() -> LlamaForCausalLM:
    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=52, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, max_position_embeddings=64, initializer_range=0.2,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


@pytest.fixture(scope="module")
def lines(model: LlamaForCausalLM, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(model, tmp_path_factory.mktemp("lines"), EMU3)


@pytest.fixture(scope="module")
def bundle(lines: Path, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return export_model(lines, tmp_path_factory.mktemp("bundle") / "lines", board="kv260")


def saved(model: LlamaForCausalLM, place: Path, layout: dict[str, Any]) -> Path:
    model.save_pretrained(place)
    (place / NAME).write_text(json.dumps(layout))
    return place


def replaying(bundle: Bundle, name: str, prompt: str):
    backend = open_backend(name, bundle, device=DeviceChoice("emulated") if name == "pynq" else None)
    try:
        replay = ReplaySettings.uniform(0.0, 2)
        return generate(bundle, prompt, seed=5, replay=replay, backend=backend, record_logits=True)
    finally:
        if hasattr(backend, "close"):
            backend.close()


@pytest.mark.parametrize("prompt", ["left", "scene-1"])
def test_the_same_bits_in_every_back_end(bundle: Bundle, prompt: str) -> None:
    runs = [replaying(bundle, name, prompt) for name in ("reference", "onnxruntime", "csim", "pynq")]
    for other in runs[1:]:
        for name in ("codes", "tas", "replay", "logits"):
            np.testing.assert_array_equal(getattr(runs[0], name), getattr(other, name), err_msg=name)
    first = runs[0]
    assert first.codes.shape == (1, 3, 6) and first.codes.min() >= 0 and first.codes.max() < 40
    assert first.logits.shape == (1, 3, 6, 40) and first.replay.shape == (3, 11, 2, 2) and first.replay.any()
    assert first.cell_replay.shape == (3, 6, 2, 2) and first.steps == 32
    assert (first.cell_replay == first.replay[:, [place for place, token in enumerate(FRAME) if token < 0]]).all()
    assert np.isnan(first.tas[0]).all() and np.isnan(first.tas[-1, -1]).all()
    assert np.isfinite(first.tas[1:].reshape(-1, 4)[:-1]).all(), "separators have a score as well"


def laid_out(prompt: list[int], codes: np.ndarray) -> list[int]:
    """The clip's tokens, one after the other."""
    tokens, left = list(prompt), list(codes.ravel())
    for _ in range(len(codes)):
        tokens += [left.pop(0) + 8 if token < 0 else token for token in FRAME]
    return tokens


def test_codes_follow_the_float_model_over_the_clip_laid_out_by_hand(bundle: Bundle, model: LlamaForCausalLM) -> None:
    dense = generate(bundle, "scene-1", seed=5, record_logits=True)
    rows = [laid_out(prompt, dense.codes[0]) for prompt in ([2, 9, 47, 1], [0, 0, 0, 1])]
    with torch.no_grad():
        conditional, free = model(torch.tensor(rows)).logits[:, :, 8:48]
    cells = [4 + place - 1 for place, token in enumerate(3 * FRAME) if token < 0]
    expected = (free + 2.0 * (conditional - free))[cells].numpy()
    assert np.corrcoef(dense.logits.ravel(), expected.ravel())[0, 1] > 0.99


def test_cross_entropy_counts_codes_alone(bundle: Bundle, lines: Path, model: LlamaForCausalLM) -> None:
    codes = np.random.default_rng(0).integers(0, 40, (4, 3, 6))
    tokens = torch.tensor([laid_out([0, 0, 2, 1], clip) for clip in codes])
    imported = load_model(lines)
    llama = whole_llama(imported.source, imported.layout.positions)
    losses = []
    with torch.no_grad():
        logits = model(tokens).logits[:, :, 8:48]
    for clip in range(4):
        for place, token in enumerate(3 * FRAME):
            if token < 0:
                own = logits[clip, 4 + place - 1].double()
                losses.append(float(own.logsumexp(0) - own[tokens[clip, 4 + place] - 8]))
    assert len(losses) == 4 * 18
    assert float_cross_entropy(llama, tokens, imported.layout) == pytest.approx(np.mean(losses), rel=1e-4)
    manifest = bundle.manifest
    backend = OnnxRuntimeBackend(bundle.path / BACKBONE, manifest.config, manifest.frame_layout, 1)
    assert cross_entropy(backend, tokens.numpy()) == pytest.approx(np.mean(losses), rel=0.03)
    frames = frame_losses(backend, tokens[:, :4].numpy(), codes)
    assert frames == pytest.approx(np.reshape(losses, (4, 3, 6)).mean(axis=2), rel=0.1)
    assert frames.mean() == pytest.approx(cross_entropy(backend, tokens.numpy()), rel=1e-12)
    with pytest.raises(ValueError, match="5 positions, none of them a code's"):
        cross_entropy(backend, tokens[:, :5].numpy())
    with pytest.raises(ValueError, match="separators alone"):
        float_cross_entropy(llama, tokens[:, :5], imported.layout)


def test_clips_of_the_user_hold_codes_alone(model: LlamaForCausalLM, tmp_path: Path) -> None:
    folder = saved(model, tmp_path / "model", EMU3 | {"clips": "clips.safetensors"})
    with pytest.raises(CheckpointError, match="no such file; .* Correct it, or leave clips out"):
        load_model(folder)
    codes = torch.randint(0, 40, (3, 3, 6))
    prompts = torch.tensor([[2, 9, 51, 1]] * 3)
    save_file({"codes": codes, "prompts": prompts}, folder / "clips.safetensors")
    expected = [laid_out([2, 9, 51, 1], clip.numpy()) for clip in codes]
    assert load_model(folder).calibration.tolist() == expected
    save_file({"codes": torch.zeros((3, 3, 11), dtype=torch.int64), "prompts": prompts}, folder / "clips.safetensors")
    with pytest.raises(CheckpointError, match=r"tensor codes is \(3, 3, 11\); expected \(clips, 3, 6\)"):
        load_model(folder)
    save_file({"codes": codes, "prompts": prompts + 1}, folder / "clips.safetensors")
    with pytest.raises(CheckpointError, match="tensor prompts holds 52; expected less than 52"):
        load_model(folder)


def test_from_the_command_line(bundle: Bundle, tmp_path: Path) -> None:
    """The report, the self-test of an engine's nodes, what `inspect` tells, and a plan."""
    options = ("--frames", 3, "--threshold", 0, "--compare", "--out", tmp_path / "clip", "--json")
    outcome = run("generate", bundle.path, "--prompt", "scene-1", *options)
    assert outcome.code == 0, outcome.stderr
    assert "2 x 3 places a frame and 5 of separators" in (tmp_path / "clip/report.html").read_text()
    record = load_file(tmp_path / "clip/run.safetensors")
    assert record["codes"].shape == (1, 3, 6) and record["replay"].shape == (3, 11, 2, 2)
    outcome = run("selftest", bundle.path, "--backend", "csim", "--json")
    assert outcome.code == 0, outcome.stderr
    outcome = run("csim", bundle.path, "--prompt", "left", "--frames", 2, "--threshold", 0, "--check", "--json")
    assert outcome.code == 0, outcome.stderr
    outcome = run("generate", bundle.path, "--prompt", "left", "--replay-ratio", 0.5, "--out", tmp_path / "ratio")
    assert outcome.code == 0, outcome.stderr
    outcome = run("inspect", bundle.path)
    assert "before a frame 48; after a row 49; after a frame 51, 5" in " ".join(outcome.stdout.split())
    assert "left, scene-1" in outcome.stdout
    outcome = run("plan", bundle.path, "--board", "kv260", "--out", tmp_path / "plan", "--json")
    assert outcome.code == 0, outcome.stderr
    assert json.loads(outcome.stdout)["tokens_per_frame"] == 11 == load_shape(bundle.path).frame_layout.tokens_per_frame


def test_the_text_of_the_traced_nodes_has_the_separators(bundle: Bundle) -> None:
    tokens = load_file(bundle.path / GOLDEN_NODES)["tokens"][0, 4:].tolist()
    assert len(tokens) > 11
    for token, place in zip(tokens, 3 * FRAME, strict=False):
        assert token == place if place >= 0 else 8 <= token < 48


def test_context_frames_as_the_prompt(model: LlamaForCausalLM, tmp_path: Path) -> None:
    bundle = export_model(saved(model, tmp_path / "model", IVIDEOGPT), tmp_path / "bundle", board="kv260")
    runs = [replaying(bundle, name, "scene-2") for name in ("reference", "csim")]
    np.testing.assert_array_equal(runs[0].logits, runs[1].logits)
    codes = runs[0].codes[0]
    assert codes.shape == (4, 3) and runs[0].rows == 1 and runs[0].replay.shape == (4, 4, 2, 1)
    dense = generate(bundle, "scene-2", seed=5, record_logits=True)
    tokens = list(IVIDEOGPT["prompt"]["sequences"]["scene-2"])
    for frame in dense.codes[0]:
        tokens += [48, *(frame + 28)]
    with torch.no_grad():
        logits = model(torch.tensor([tokens])).logits[0, :, 28:48].numpy()
    predicted = [14 + 4 * frame + cell for frame in range(4) for cell in range(3)]  # the slot token predicts the first
    assert np.corrcoef(dense.logits.ravel(), logits[predicted].ravel())[0, 1] > 0.99
    assert (generate(bundle, "scene-1", seed=5).codes != dense.codes).any()
    with pytest.raises(UsageError, match=r"unknown word 'scene-3'; expected one of: scene-1, scene-2"):
        generate(bundle, "scene-3")


def test_the_examples_of_the_readme(tmp_path: Path) -> None:
    text = Path(str(files("fastcar"))).joinpath("README.md").read_text("utf-8")
    blocks = re.findall(r'```json\n( "frame_layout".*?),\n```', text, re.S)
    layouts = []
    for block in blocks:
        file = json.loads(f'{{"name": "x", "prompt": {{"pad": 0, "start": 1, "words": {{}}, "phrases": []}}, {block}}}')
        (tmp_path / NAME).write_text(json.dumps(file))
        layouts.append(read_layout(tmp_path / NAME))
    emu3, ivideogpt = layouts
    assert emu3.frame_layout.tokens_per_frame == 1057
    assert emu3.frame_layout == load_shape("emu3-8b").frame_layout
    prompt = ivideogpt.prompt.encode("scene-1", ivideogpt.frame_layout.prompt_length)
    assert len(prompt) == 2 * 8 + 1 and prompt[8] == ivideogpt.frame_layout.before_frame[0]


def test_bundles_of_before_still_open(bundle_w8a8: Path, tmp_path: Path) -> None:
    """Neither the manifest nor the vocabulary had the keys."""
    old = tmp_path / "old"
    shutil.copytree(bundle_w8a8, old)
    manifest, words = (json.loads((old / name).read_text()) for name in ("manifest.json", TOKENIZER))
    for key in ("before_frame", "after_row", "after_frame"):
        assert manifest["frame_layout"].pop(key) == []
    assert words.pop("sequences") == {}
    (old / TOKENIZER).write_text(json.dumps(words))
    manifest["files"][TOKENIZER] = file_entry(old / TOKENIZER).model_dump()
    (old / "manifest.json").write_text(json.dumps(manifest))
    prompt = Bundle.open(old).prompts.phrases[0]
    found, expected = (generate(Bundle.open(path), prompt, frames=2, seed=1) for path in (old, bundle_w8a8))
    assert (found.codes == expected.codes).all()


def test_a_bundle_whose_separators_are_no_tokens(bundle: Bundle, tmp_path: Path) -> None:
    manifest = json.loads((bundle.path / "manifest.json").read_text())
    manifest["frame_layout"]["after_row"] = [52]
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(BundleError, match="separator 52, beyond the vocabulary of 52"):
        Bundle.open(tmp_path)


def frame(**changes: object) -> Callable[[dict], object]:
    return lambda layout: layout["frame_layout"].update(changes)


def sequence(name: str, ids: list[int]) -> Callable[[dict], object]:
    return lambda layout: layout["prompt"]["sequences"].update({name: ids})


BAD: dict[str, tuple[Callable[[dict], object], str]] = {
    "beyond the vocabulary": (frame(after_row=[52]), "separator 52, beyond the vocabulary of 52"),
    "below 0": (frame(after_frame=[-1]), "frame_layout.after_frame.0: Input should be greater than or equal to 0"),
    "a code": (frame(before_frame=[8]), "before_frame holds 8, which is a code (8 to 47)"),
    "no list": (frame(after_row=49), "frame_layout.after_row: Input should be a valid"),
    "separators that make the clip too long": (frame(after_row=[49] * 8), "a clip of 79 positions; expected at most"),
    "a short sequence": (sequence("scene-2", [1, 2, 3]), "phrase 'scene-2': sequence 'scene-2' of 3 tokens"),
    "a sequence beyond": (sequence("scene-2", [1, 2, 3, 52]), "sequence 'scene-2' holds 52; expected tokens below 52"),
    "a sequence below 0": (sequence("scene-2", [1, 2, -3, 5]), "sequence 'scene-2' holds -3"),
    "a sequence named like a word": (sequence("Left", [1, 2, 3, 4]), "sequence 'Left': its name is empty"),
    "a sequence without a name": (sequence(" ", [1, 2, 3, 4]), "its name is empty, has spaces around it"),
}


@pytest.mark.parametrize("kind", BAD)
def test_refused_before_any_work(kind: str, lines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastcar.export.huggingface.weights.read_finite", lambda *_: pytest.fail("nothing may be read"))
    change, told = BAD[kind]
    layout = json.loads(json.dumps(EMU3))
    change(layout)
    (tmp_path / "layout.json").write_text(json.dumps(layout))
    with pytest.raises(CheckpointError) as caught:
        export_model(lines, tmp_path / "out", frame_layout=tmp_path / "layout.json")
    assert told in str(caught.value) and "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()
