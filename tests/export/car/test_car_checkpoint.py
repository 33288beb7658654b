"""The checkpoint folder: what is written is read back, and every damage is named before anything is done."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from fastcar.export.car.checkpoint import (
    CarCheckpoint,
    CarConfig,
    ClipSet,
    load_checkpoint,
    load_clips,
    load_frames,
    save_checkpoint,
)
from fastcar.export.car.prompt import car_prompts
from fastcar.export.car.tokenizer import DecoderConfig, EncoderConfig, Tokenizer
from fastcar.export.llama import Llama
from fastcar.toolkit.config import BackboneConfig, FrameLayout
from fastcar.toolkit.errors import CheckpointError, OutputError, UsageError

CONFIG = CarConfig(
    name="tiny",
    backbone=BackboneConfig(hidden=16, layers=2, heads=2, kv_heads=1, head_dim=8, mlp=24, vocab=48),
    frame_layout=FrameLayout(prompt_length=4, frames=2, grid=(2, 2), code_offset=32, codes=16),
    prompt=car_prompts(),
    encoder=EncoderConfig(patch=4, channels=(8, 8), blocks=(1, 1)),
    decoder=DecoderConfig.pyramid(4, (8, 8, 8, 8), (1, 0, 0, 0)),
    frame_rate=25.0,
)


def tiny() -> CarCheckpoint:
    torch.manual_seed(0)
    tokenizer = Tokenizer(CONFIG.encoder, CONFIG.decoder, CONFIG.frame_layout.codes)
    return CarCheckpoint(CONFIG, Llama(CONFIG.backbone, CONFIG.frame_layout.positions), tokenizer)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    clips = ClipSet(
        rng.integers(0, 16, (3, 2, 4)).astype(np.uint16), np.tile(CONFIG.prompt.encode("left turn", 4), (3, 1))
    )
    frames = rng.integers(0, 256, (2, 2, 16, 16, 3)).astype(np.uint8)
    save_checkpoint(
        tmp_path / "tiny", tiny(), {"calibration": clips, "heldout": clips}, frames, {"clips": 3}, "# tiny\n"
    )
    return tmp_path / "tiny"


def test_round_trip(folder: Path) -> None:
    loaded, written = load_checkpoint(folder), tiny()
    assert loaded.config == CONFIG and not loaded.llama.training and not loaded.tokenizer.training
    for module in ("llama", "tokenizer"):
        stored, original = getattr(loaded, module).state_dict(), getattr(written, module).state_dict()
        assert list(stored) == list(original)
        assert all(torch.equal(stored[name], original[name].half().float()) for name in original)
    assert all(tensor.dtype == torch.float16 for tensor in load_file(folder / "backbone.safetensors").values())


def test_round_trip_of_clips_and_frames(folder: Path) -> None:
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 16, (3, 2, 4))
    clips = load_clips(folder, "heldout")
    assert clips.codes.dtype == np.uint16 and np.array_equal(clips.codes, codes)
    assert np.array_equal(load_frames(folder), rng.integers(0, 256, (2, 2, 16, 16, 3)))
    tokens = clips.tokens(CONFIG.frame_layout)
    assert tokens.shape == (3, 12) and tokens[0, :4].tolist() == CONFIG.prompt.encode("left turn", 4).tolist()
    assert np.array_equal(tokens[:, 4:], codes.reshape(3, 8) + 32)


def test_saving_replaces_the_folder_and_leaves_nothing_beside_it(folder: Path) -> None:
    (folder / "stale").touch()
    save_checkpoint(folder, tiny())
    assert not (folder / "stale").exists() and (folder / "config.json").exists()
    assert [path.name for path in folder.parent.iterdir()] == ["tiny"]


def test_saving_where_nothing_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="cannot be written"):
        save_checkpoint(tmp_path / "file" / "tiny", tiny())


Tensors = dict[str, torch.Tensor]
Q = "model.layers.1.self_attn.q_proj.weight"


def poisoned(tensors: Tensors, name: str, index: tuple[int, ...], value: float) -> Tensors:
    tensors[name][index] = value
    return tensors


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("backbone", lambda t: {k: v for k, v in t.items() if k != Q}, f"tensor {Q} is missing"),
        ("backbone", lambda t: {**t, "extra.weight": torch.ones(2)}, "extra.weight is not part of the model"),
        ("backbone", lambda t: {**t, Q: t[Q][:, :8].contiguous()}, f"tensor {Q} is (16, 8); expected (16, 16)"),
        ("backbone", lambda t: {**t, Q: t[Q].int()}, f"tensor {Q} is torch.int32"),
        ("backbone", lambda t: poisoned(t, Q, (3, 5), float("nan")), f"{Q}[3, 5] is nan"),
        ("backbone", lambda t: poisoned(t, "model.norm.weight", (7,), float("inf")), "model.norm.weight[7] is inf"),
        (
            "tokenizer",
            lambda t: poisoned(t, "codebook.weight", (15, 2), float("-inf")),
            "codebook.weight[15, 2] is -inf",
        ),
        ("tokenizer", lambda t: {k: v for k, v in t.items() if k != "codebook.weight"}, "codebook.weight is missing"),
    ],
)
def test_bad_tensor_is_named(folder: Path, file: str, change: Callable[[Tensors], Tensors], message: str) -> None:
    path = folder / f"{file}.safetensors"
    save_file(change(load_file(path)), path)
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(folder)
    assert message in str(caught.value) and str(path) in str(caught.value)


@pytest.mark.parametrize("name", ["config.json", "backbone.safetensors", "tokenizer.safetensors"])
def test_missing_or_truncated_file_is_named(folder: Path, name: str) -> None:
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[: len(content) // 2])
    with pytest.raises(CheckpointError, match=name):
        load_checkpoint(folder)
    (folder / name).unlink()
    with pytest.raises(CheckpointError, match=f"{name}: cannot be read"):
        load_checkpoint(folder)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("version", 2, "version"),
        ("format", "other", "format"),
        ("speed", 1, "speed"),
        ("frame_rate", 0, "frame_rate"),
        ("frame_rate", "25", "frame_rate"),
        ("frame_rate", 1e300, "frame_rate"),
    ],
)
def test_bad_configuration_names_the_field(folder: Path, key: str, value: object, message: str) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    with pytest.raises(CheckpointError, match=f"config.json: {message}"):
        load_checkpoint(folder)


def test_bad_clips_are_named(folder: Path) -> None:
    path = folder / "calibration.safetensors"
    stored = load_file(path)
    stored["codes"] = torch.full_like(stored["codes"].int(), 16).to(torch.uint16)
    save_file(stored, path)
    with pytest.raises(CheckpointError, match="holds 16; expected less than 16"):
        load_clips(folder, "calibration")
    save_file({"codes": torch.zeros_like(stored["codes"])}, path)
    with pytest.raises(CheckpointError, match="tensor prompts is missing"):
        load_clips(folder, "calibration")
    path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(CheckpointError, match="is cut short"):
        load_clips(folder, "calibration")


def test_bad_frames_are_named(folder: Path) -> None:
    (folder / "heldout.png").write_bytes(b"not a picture")
    with pytest.raises(CheckpointError, match="heldout.png"):
        load_frames(folder)


def test_prompt_encoding() -> None:
    prompts = car_prompts()
    words = prompts.words
    assert prompts.encode("sharp left turn", 4).tolist() == [
        words["sharp"],
        words["left"],
        words["turn"],
        prompts.start,
    ]
    assert prompts.encode("slow", 4).tolist() == [words["slow"], prompts.pad, prompts.pad, prompts.start]
    assert prompts.unconditional(4).tolist() == [prompts.pad] * 3 + [prompts.start]
    assert max(words.values()) < CONFIG.frame_layout.code_offset and len({*words.values(), 0, 1}) == len(words) + 2
    with pytest.raises(UsageError, match="unknown word 'uphill'; expected words of: .*left"):
        prompts.encode("uphill", 4)
    with pytest.raises(UsageError, match="4 words; expected at most 3"):
        prompts.encode("left left left left", 4)
