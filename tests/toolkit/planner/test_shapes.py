"""Shapes to plan for: what the built-in ones weigh, and what is no shape."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from fastcar import Bundle
from fastcar.toolkit.errors import BundleError, CheckpointError, UsageError
from fastcar.toolkit.planner import shapes
from fastcar.toolkit.planner.memory_fit import memory_need
from fastcar.toolkit.planner.program import shape_program
from fastcar.toolkit.planner.shapes import load_shape, shape_names
from fastcar.toolkit.planner.step import Rows
from fastcar.toolkit.program.descriptors import DEPTH_LAYER


def weights(name: str) -> int:
    """Of the backbone's linear layers, from its dimensions alone."""
    c = load_shape(name).backbone
    kv = c.kv_heads * c.head_dim
    return c.layers * (2 * c.hidden * c.heads * c.head_dim + 2 * c.hidden * kv + 3 * c.hidden * c.mlp)


@pytest.mark.parametrize(
    ("name", "millions"), [("vila-u-7b", 6476), ("llama-1.1b", 969), ("emu3-8b", 6980), ("car", 4.42)]
)
def test_weights_of_the_built_in_shapes(name: str, millions: float) -> None:
    assert weights(name) / 1e6 == pytest.approx(millions, rel=0.002)


def test_the_depth_transformer_has_the_weights_that_are_known_of_it() -> None:
    """0.47 G of its layers; beside them the classifier, two inputs, a codebook in binary16 and the projector."""
    nodes = shape_program(load_shape("vila-u-7b"), "w8a8").nodes
    layers = sum(node["inputs"] * node["outputs"] for node in nodes if node["opcode"] in DEPTH_LAYER)
    assert layers == pytest.approx(0.47e9, rel=0.01)
    weights = memory_need(shape_program(load_shape("vila-u-7b"), "w8a8"), Rows(2, 1)).weights
    words = 2 * (6 * 9 * 2560 + 16384 + 2 * 2560) + 2 * 2560 * (2 * 6 + 1) + 5 * 40 * 6 + 4 * 2560
    beside = 2560 * 16384 + (4096 + 256) * 2560 + 2 * 16384 * 256
    assert weights["depth transformer"] == pytest.approx(layers + beside + 4 * words, rel=1e-4)
    assert weights["projections"] == (256 + 4096 + 2 * 2 * 4) * 4096


@pytest.mark.parametrize("name", shape_names())
def test_every_shape_can_be_planned(name: str) -> None:
    shape = load_shape(name)
    assert shape.source or name == "car"
    assert shape_program(shape, "w4a8").program().size


def test_of_a_bundle(bundle_w4a8: Path) -> None:
    manifest = Bundle.open(bundle_w4a8).manifest
    shape = load_shape(bundle_w4a8)
    assert (shape.backbone, shape.frame_layout) == (manifest.config, manifest.frame_layout)
    assert shape.recipe == "w4a8" and shape.guided == manifest.sampling.guided


def test_of_a_checkpoint_no_weights_are_read(tmp_path: Path) -> None:
    car = load_shape("car")
    parts = {"backbone": car.backbone.model_dump(), "frame_layout": car.frame_layout.model_dump()}
    (tmp_path / "config.json").write_text(json.dumps({"format": "fastcar.checkpoint", **parts}))
    assert load_shape(tmp_path).backbone == car.backbone


def test_of_a_hugging_face_checkpoint(tmp_path: Path) -> None:
    sizes = {"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 96}
    rest = {"vocab_size": 50, "rms_norm_eps": 1e-5, "max_position_embeddings": 64}
    rest |= {"architectures": ["LlamaForCausalLM"]}
    (tmp_path / "config.json").write_text(json.dumps({**sizes, **rest}))
    with pytest.raises(CheckpointError, match="frame_layout.json: cannot be read"):
        load_shape(tmp_path)
    layout = {"prompt_length": 2, "frames": 2, "grid": [4, 4], "code_offset": 8, "codes": 40}
    prompt = {"pad": 0, "start": 1, "words": {}, "phrases": []}
    told = {"name": "small", "frame_layout": layout, "prompt": prompt, "sampling": {"guidance": 2.0}}
    (tmp_path / "frame_layout.json").write_text(json.dumps(told))
    shape = load_shape(tmp_path)
    assert (shape.name, shape.backbone.layers, shape.frame_layout.codes, shape.guided) == ("small", 3, 40, True)
    assert shape_program(shape, "w8a8").config == shape.backbone


@pytest.mark.parametrize(
    ("text", "found"), [("{", "does not describe"), ("[]", "does not describe"), ('{"backbone": {}}', "does not")]
)
def test_no_checkpoint(tmp_path: Path, text: str, found: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(CheckpointError, match=found):
        load_shape(tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("head_dim = 64", "head_dim = 8", "head_dim 8; expected a multiple of 16. No engine"),
        ("layers = 22", "layers = 1000000000", "layers 1000000000; expected at most 256"),
        ("[16, 16]", "[4096, 4096]", "frame_layout: 134217760 positions of 8 frames, at most 65536"),
        ("codes = 1024", "codes = 40000\n", "codes 40000; expected at most 32768"),
    ],
)
def test_what_no_engine_holds(old: str, new: str, told: str, tmp_path: Path) -> None:
    text = (Path(shapes.__file__).parent / "shapes/llama-1.1b.toml").read_text()
    (tmp_path / "odd.toml").write_text(text.replace(old, new).replace("vocab = 1280", "vocab = 50000"))
    with pytest.raises(UsageError, match=r"odd(\.toml)?: " + re.escape(told)):
        shape_program(load_shape(str(tmp_path / "odd.toml")), "w4a8")


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("heads = 40", "heads = 39", "depth: hidden 2560 must be a multiple of heads 39"),
        ("heads = 40", "heads = 64", "heads 64 of the depth transformer; expected at most 63. No engine of this kind"),
        ("heads = 40", "heads = 10", "head_dim 256 of the depth transformer; expected at most 128"),
        ("mlp = 10_240", "mlp = 3", "mlp of the depth transformer 3; expected a multiple of 16"),
        ("position = 4", "position = 17", "codes_per_position 17 of the depth transformer; expected at most 16"),
        ("codes = 16_384", "codes = 16_384\nafter_row = [3]", "frame_layout: after_row holds 3, which is a code"),
        ("codes = 16_384", "codes = 1\nafter_row = [3]", "separators between positions of several codes"),
    ],
)
def test_depth_transformers_that_cannot_be_counted(old: str, new: str, told: str, tmp_path: Path) -> None:
    text = (Path(shapes.__file__).parent / "shapes/vila-u-7b.toml").read_text()
    assert old in text
    (tmp_path / "odd.toml").write_text(text.replace(old, new))
    with pytest.raises(UsageError, match=re.escape(told)):
        shape_program(load_shape(str(tmp_path / "odd.toml")), "w4a8")


def test_what_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="'nothing' is not known, and no such folder; expected one of car, "):
        load_shape("nothing")
    with pytest.raises(UsageError, match="a folder without manifest.json or config.json"):
        load_shape(tmp_path)
    with pytest.raises(UsageError, match="cannot be read"):
        load_shape(str(tmp_path / "none.toml"))
    (tmp_path / "bad.toml").write_text("[backbone]\nhidden = 0\n")
    with pytest.raises(UsageError, match="backbone.hidden"):
        load_shape(str(tmp_path / "bad.toml"))
    (tmp_path / "bad.toml").write_text("= 3")
    with pytest.raises(UsageError, match="is not TOML"):
        load_shape(str(tmp_path / "bad.toml"))
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(BundleError):
        load_shape(tmp_path)


def test_a_frame_of_emu3_has_its_separators() -> None:
    """33 positions a row, the last one an end of line, and the end of the frame: their tokens precede the codes."""
    shape = load_shape("emu3-8b")
    layout = shape.frame_layout
    assert layout.tokens_per_frame == 32 * 33 + 1 == 1057 and layout.cells == 1024
    assert layout.positions == 64 + 4 * 1057
    assert max(layout.separators) < layout.code_offset == shape.backbone.vocab - layout.codes


def test_context_frames_of_ivideogpt_are_its_prompt() -> None:
    """256 + 1 tokens of two context frames, the first without its slot token, and 16 + 1 of each of 14 others."""
    layout = load_shape("ivideogpt-medium").frame_layout
    assert layout.prompt_length == 2 * 257 - 1 and layout.tokens_per_frame == 17
    assert layout.positions == 2 * 257 + 14 * 17 - 1


def test_separators_outside_the_vocabulary(tmp_path: Path) -> None:
    text = (Path(shapes.__file__).parent / "shapes/llama-1.1b.toml").read_text()
    (tmp_path / "shape.toml").write_text(text.replace("codes = 1024", "codes = 1024\nafter_row = [1280]"))
    with pytest.raises(UsageError, match="separator 1280, beyond the vocabulary of 1280"):
        load_shape(tmp_path / "shape.toml")
