"""A checkpoint folder is recognized by what it declares; whatever is wrong with it is told before any work."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from car_like import CONFIG, LAYOUT, damaged_checkpoint, random_llama
from whole_llama import whole_llama

from fastcar.export.importers import BUILT_IN, IMPORTERS, checkpoint_files, load_model
from fastcar.toolkit.errors import CheckpointError


@pytest.fixture
def copy(car_like: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(car_like, tmp_path / "copy"))


def edit_config(folder: Path, **changes: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_a_folder_is_imported(car_like: Path):
    for given in (car_like, str(car_like)):
        model = load_model(given)
        assert (model.name, model.layout, model.frame_rate) == ("car-like", LAYOUT, 8.0)
    assert model.calibration.shape == (6, LAYOUT.positions) and model.held_out.shape == (4, LAYOUT.positions)
    assert model.calibration.dtype == torch.int64
    codes = model.calibration[:, LAYOUT.prompt_length :]
    assert codes.min() >= LAYOUT.code_offset and codes.max() < LAYOUT.code_offset + LAYOUT.codes
    found = whole_llama(model.source, LAYOUT.positions).state_dict()
    for name, value in random_llama().state_dict().items():
        torch.testing.assert_close(found[name], value.half().float(), rtol=0, atol=0)


def test_prompts_encode_as_the_clips_were(car_like: Path):
    model = load_model(car_like)
    for index, phrase in enumerate(model.prompts.phrases[:4]):
        expected = model.calibration[index, : LAYOUT.prompt_length].numpy()
        np.testing.assert_array_equal(model.prompts.encode(phrase, LAYOUT.prompt_length), expected)


def test_built_in_models_and_formats_are_named():
    assert "car" in BUILT_IN and "fastcar.checkpoint" in IMPORTERS


@pytest.mark.parametrize("name", ["cra", "meta-llama/Llama-2-7b", "", "no\u0301where"])
def test_an_unknown_name_lists_the_known_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        CheckpointError, match=r"expected a checkpoint folder or one of: car|missing; expected a config"
    ):
        load_model(name)


def test_a_file_is_not_a_folder(car_like: Path):
    with pytest.raises(CheckpointError, match=r"backbone\.safetensors: is a file; expected a checkpoint folder"):
        load_model(car_like / "backbone.safetensors")


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("{", "not JSON"),
        ("", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[1, 2]", "format None, and no architectures"),
        ('{"architectures": ["Emu3ForCausalLM"]}', r"architectures \['Emu3ForCausalLM'\]"),
        ('{"architectures": "LlamaForCausalLM"}', "architectures 'LlamaForCausalLM'"),
        ('{"model_type": "llama"}', "format None"),
        ('{"format": "gguf"}', "format 'gguf'"),
        ('{"format": []}', r"format \[\]"),
        ('{"format": {"fastcar.checkpoint": 1}}', "format"),
    ],
)
def test_a_config_of_another_format(copy: Path, text: str, word: str):
    (copy / "config.json").write_text(text)
    with pytest.raises(CheckpointError, match=rf"config\.json: {word}.*expected"):
        load_model(copy)


@pytest.mark.parametrize("declared", [{"architectures": ["Emu3ForCausalLM"]}, {"format": "gguf"}, {}])
def test_what_is_supported_is_listed(copy: Path, declared: dict):
    (copy / "config.json").write_text(json.dumps(declared))
    with pytest.raises(CheckpointError) as caught:
        load_model(copy)
    for name in ("LlamaForCausalLM", "vila_u_llama", "fastcar.checkpoint"):
        assert name in caught.value.expected


def test_a_config_that_cannot_be_read(copy: Path):
    (copy / "config.json").write_bytes(b"\xff\xfe")
    with pytest.raises(CheckpointError, match="not JSON"):
        load_model(copy)
    (copy / "config.json").unlink()
    with pytest.raises(CheckpointError, match=r"config\.json: missing"):
        load_model(copy)
    (copy / "config.json").mkdir()
    with pytest.raises(CheckpointError, match="cannot be read"):
        load_model(copy)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"version": 2}, "version"),
        ({"backbone": {"hidden": 32}}, "backbone"),
        ({"surprise": 1}, "surprise"),
        ({"frame_rate": 0}, "frame_rate"),
        ({"prompt": {**CONFIG.prompt.model_dump(), "phrases": []}}, "no phrases"),
        ({"prompt": {**CONFIG.prompt.model_dump(), "phrases": ["left turn", "upwards"]}}, "'upwards'"),
        ({"prompt": {**CONFIG.prompt.model_dump(), "phrases": ["left left left left"]}}, "4 words"),
        ({"prompt": {**CONFIG.prompt.model_dump(), "phrases": [""]}}, "empty prompt"),
        ({"prompt": {**CONFIG.prompt.model_dump(), "start": LAYOUT.code_offset}}, "prompt token 16"),
        ({"prompt": {**CONFIG.prompt.model_dump(), "pad": -1}}, "prompt token -1"),
    ],
)
def test_a_config_that_contradicts_itself(copy: Path, changes: dict, word: str):
    edit_config(copy, **changes)
    with pytest.raises(CheckpointError, match=rf"config\.json: .*{word}"):
        load_model(copy)


def test_the_layout_whose_rotary_pairs_are_others_is_told_by_its_name(tmp_path: Path):
    (tmp_path / "params.json").write_text('{"dim": 64}')
    (tmp_path / "consolidated.00.pth").touch()
    with pytest.raises(CheckpointError, match=r"config\.json: missing; params\.json is of Meta's own layout"):
        load_model(tmp_path)


def test_files_that_an_import_may_read(copy: Path, tmp_path: Path):
    """In linked folders too, a loop once; not in hidden ones, such as that of an unfinished export."""
    (tmp_path / "far").mkdir()
    imported = load_model(copy)
    before = checkpoint_files(copy, imported)
    assert copy / "backbone.safetensors" in before
    (tmp_path / "far/more.bin").touch()
    (copy / "linked").symlink_to(tmp_path / "far")
    (copy / "loop").symlink_to(copy)
    (copy / ".out.1234.partial").mkdir()
    (copy / ".out.1234.partial/backbone.safetensors").touch()
    after = checkpoint_files(copy, replace(imported, files=(tmp_path / "clips.safetensors",)))
    assert {*after} - {*before} >= {copy / "linked/more.bin", tmp_path / "clips.safetensors"}
    assert not any(".out" in str(path) for path in after)


@pytest.mark.parametrize("name", ["backbone", "tokenizer", "calibration", "heldout"])
def test_a_missing_or_truncated_file_is_named(copy: Path, name: str):
    path = copy / f"{name}.safetensors"
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(CheckpointError, match=rf"{name}\.safetensors"):
        load_model(copy)
    path.unlink()
    with pytest.raises(CheckpointError, match=rf"{name}\.safetensors"):
        load_model(copy)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize(
    ("file", "tensor", "index"),
    [
        ("backbone.safetensors", "model.layers.1.mlp.up_proj.weight", (3, 5)),
        ("backbone.safetensors", "model.norm.weight", (31,)),
        ("tokenizer.safetensors", "codebook.weight", (2, 1)),
    ],
)
def test_a_weight_that_is_not_finite_is_named(
    car_like: Path, tmp_path: Path, value: float, file: str, tensor: str, index: tuple[int, ...]
):
    folder = damaged_checkpoint(car_like, tmp_path / "damaged", file, tensor, index, value)
    with pytest.raises(CheckpointError) as caught:
        load_model(folder)
    assert file in str(caught.value) and f"{tensor}{list(index)} is {value}" in str(caught.value)
