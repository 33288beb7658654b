"""The weight file: what is written is read again, and a header that lies is found."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from random_models import config, random_model
from safetensors.numpy import load_file

from fastcar.export.backbone import write_graph
from fastcar.toolkit.bundle import tensors as bundle_tensors
from fastcar.toolkit.bundle.bundle import BACKBONE, WEIGHTS, Bundle
from fastcar.toolkit.bundle.tensor_file import TensorSpec, TensorWriter, stored_tensors, write_tensors
from fastcar.toolkit.bundle.tensors import model_tensors, pack_int4, planned_tensors, read_model, unpack_int4
from fastcar.toolkit.errors import BundleError
from fastcar.toolkit.numerics.rope import rotary_tables

SHAPES = [(1, 1), (2, 1), (1, 3), (3, 5), (4, 6), (7, 9)]


@pytest.mark.parametrize("shape", SHAPES)
def test_int4_packing_is_that_of_onnx(shape: tuple[int, int]):
    values = np.random.default_rng(shape[0]).integers(-8, 8, shape).astype(np.int8)
    packed = pack_int4(values)
    made = onnx.helper.make_tensor("x", onnx.TensorProto.INT4, shape, values.astype(ml_dtypes.int4))
    assert packed.tobytes() == onnx.numpy_helper.from_array(values.astype(ml_dtypes.int4), "x").raw_data
    raw = onnx.helper.make_tensor("x", onnx.TensorProto.INT4, shape, packed.tobytes(), raw=True)
    for tensor in (made, raw):
        np.testing.assert_array_equal(onnx.numpy_helper.to_array(tensor).astype(np.int8), values)
    np.testing.assert_array_equal(unpack_int4(packed, shape), values)


def test_int4_literal():
    """The first value in the low half; -1 is 15."""
    assert pack_int4(np.array([[1, -1, -8]], np.int8)).tolist() == [0xF1, 0x08]
    np.testing.assert_array_equal(unpack_int4(np.array([0xF1, 0x08], np.uint8), (3, 1)), [[1], [-1], [-8]])


def assert_equal(found: Any, expected: Any, where: str = "model") -> None:
    """Equal in every field, array type included."""
    assert type(found) is type(expected), where
    if isinstance(expected, np.ndarray):
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape), where
        np.testing.assert_array_equal(found, expected, where)
    elif isinstance(expected, tuple):
        assert len(found) == len(expected), where
        for index, (a, b) in enumerate(zip(found, expected, strict=True)):
            assert_equal(a, b, f"{where}[{index}]")
    elif is_dataclass(expected):
        for field in fields(expected):
            assert_equal(getattr(found, field.name), getattr(expected, field.name), f"{where}.{field.name}")
    else:
        assert found == expected, where


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("tas_query", ["post_rope", "pre_rope"])
@pytest.mark.parametrize("biases", [{}, {"attention_bias": True}, {"mlp_bias": True}])
def test_a_model_is_read_as_it_was_written(tmp_path: Path, bits: int, tas_query: str, biases: dict[str, bool]):
    tas_heads = "max" if biases else "mean"
    model = random_model(bits, shape=config(**biases), tas_query=tas_query, tas_heads=tas_heads)
    write_tensors(tmp_path / "w", model_tensors(model))
    found, tensors = read_model(tmp_path / "w", model.config, model.layout, tas_query, tas_heads=tas_heads)
    assert_equal(found, model)
    for name, table in zip(("cos", "sin"), rotary_tables(model.config, model.layout.positions), strict=True):
        assert_equal(tensors[f"rotary.{name}"], table)


@pytest.mark.parametrize("bits", [8, 4])
def test_layers_of_a_large_file_are_read_when_asked_for(tmp_path: Path, bits: int, monkeypatch: pytest.MonkeyPatch):
    model = random_model(bits)
    write_tensors(tmp_path / "w", model_tensors(model))
    monkeypatch.setattr(bundle_tensors, "IN_MEMORY", 0)
    layers = read_model(tmp_path / "w", model.config, model.layout, "post_rope")[0].layers
    assert len(layers) == model.config.layers and layers[1] is layers[1]
    assert_equal(tuple(layers), model.layers)
    with pytest.raises(IndexError):
        layers[len(layers)]


@pytest.mark.parametrize("biases", [{}, {"attention_bias": True}, {"mlp_bias": True}])
@pytest.mark.parametrize("bits", [8, 4])
def test_the_planned_tensors_are_those_of_the_model(bits: int, biases: dict[str, bool]):
    model = random_model(bits, shape=config(**biases))
    expected = {name: TensorSpec.of(array) for name, array in model_tensors(model).items()}
    assert planned_tensors(model.config, model.layout, model.layers[0].down.group_size) == expected


def test_a_file_is_filled_in_any_order_and_gone_on_with(tmp_path: Path):
    tensors = model_tensors(random_model(4))
    specs = {name: TensorSpec.of(array) for name, array in tensors.items()}
    writer = TensorWriter(tmp_path / "w", specs)
    assert (tmp_path / "w").stat().st_size == writer.bytes
    names = list(tensors)
    writer.write({name: tensors[name] for name in names[::2]})
    TensorWriter(tmp_path / "w", specs).write({name: tensors[name] for name in names[1::2]})
    found = load_file(tmp_path / "w")
    assert found.keys() == tensors.keys()
    for name, array in tensors.items():
        np.testing.assert_array_equal(found[name], array, name)
    others = {name: specs[name] for name in names[1:]}
    TensorWriter(tmp_path / "w", others)
    assert stored_tensors(tmp_path / "w").keys() == others.keys()
    with pytest.raises(ValueError, match="planned"):
        writer.write({"embedding": np.zeros(3, np.float32)})


def test_every_tensor_is_aligned(tmp_path: Path):
    tensors = {"a": np.zeros(3, np.uint8), "b": np.zeros(1, np.float64), "c": np.zeros(5, np.float16)}
    write_tensors(tmp_path / "w", tensors | {"d": np.zeros((0, 4), np.float32)})
    for name, place in stored_tensors(tmp_path / "w").items():
        assert place.offset % {"a": 1, "b": 8, "c": 2, "d": 4}[name] == 0


@pytest.mark.parametrize(("stored", "said"), [({}, {"mlp_bias": True}), ({"attention_bias": True}, {})])
def test_biases_are_those_the_config_says(tmp_path: Path, stored: dict[str, bool], said: dict[str, bool]):
    model = random_model(shape=config(**stored))
    write_tensors(tmp_path / "w", model_tensors(model))
    with pytest.raises(BundleError, match=r"layers\.0\.\w+\.bias"):
        read_model(tmp_path / "w", config(**said), model.layout, "post_rope")


def test_four_bits_take_half_the_bytes(bundle_w8a8: Path, bundle_w4a8: Path):
    eight, four = (stored_tensors(folder / WEIGHTS) for folder in (bundle_w8a8, bundle_w4a8))
    for name in ("layers.0.qkv.weight", "layers.1.down.weight"):
        assert four[name].length * 2 == eight[name].length


@pytest.mark.parametrize("recipe", ["w8a8", "w4a8"])
def test_the_graph_points_at_the_bytes_of_the_weight_file(recipe: str, request: pytest.FixtureRequest):
    folder = request.getfixturevalue(f"bundle_{recipe}")
    stored = stored_tensors(folder / WEIGHTS)
    data = (folder / WEIGHTS).read_bytes()
    tensors = load_file(folder / WEIGHTS)
    graph = onnx.load(folder / BACKBONE, load_external_data=False).graph
    assert {tensor.name for tensor in graph.initializer} == {name for name in stored if not name.endswith(".tas_scale")}
    for tensor in graph.initializer:
        assert tensor.data_location == onnx.TensorProto.EXTERNAL, tensor.name
        external = {entry.key: entry.value for entry in tensor.external_data}
        place = stored[tensor.name]
        assert external["location"] == WEIGHTS
        assert (int(external["offset"]), int(external["length"])) == (place.offset, place.length), tensor.name
        assert data[place.offset : place.offset + place.length] == tensors[tensor.name].tobytes(), tensor.name
    loaded = {
        tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in onnx.load(folder / BACKBONE).graph.initializer
    }
    for name, linear in Bundle.open(folder).model()[0].linears():
        weight = loaded[f"{name}.weight"]
        expected = linear.values if linear.bit_width == 4 else linear.values.astype(np.int16) + 128
        np.testing.assert_array_equal(weight.astype(np.int16), expected, name)


Header = dict[str, dict[str, Any]]


def rewrite(path: Path, change: Callable[[Header], Any], extra: bytes = b"") -> None:
    """The file with a header that ``change`` has edited (or replaced by what it returns)."""
    content = path.read_bytes()
    length = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8 : 8 + length])
    returned = change(header)
    text = returned if isinstance(returned, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + content[8 + length :] + extra)


def shift(header: Header, name: str, begin: int, end: int) -> None:
    offsets = header[name]["data_offsets"]
    header[name]["data_offsets"] = [offsets[0] + begin, offsets[1] + end]


@pytest.fixture
def small(tmp_path: Path) -> Path:
    tensors = {"a": np.arange(6, dtype=np.float32), "b": np.arange(4, dtype=np.uint8), "c": np.zeros(3, np.int64)}
    write_tensors(tmp_path / "small.safetensors", tensors)
    return tmp_path / "small.safetensors"


def test_stored_tensors_describe_the_file(small: Path):
    content, stored = small.read_bytes(), stored_tensors(small)
    assert {name: (tensor.dtype, tensor.shape) for name, tensor in stored.items()} == {
        "a": ("F32", (6,)),
        "b": ("U8", (4,)),
        "c": ("I64", (3,)),
    }
    place = stored["a"]
    np.testing.assert_array_equal(np.frombuffer(content[place.offset :][: place.length], np.float32), np.arange(6))


@pytest.mark.parametrize(
    "change",
    [
        lambda header: shift(header, "a", 0, 4),
        lambda header: shift(header, "a", 4, 4),
        lambda header: shift(header, "b", -1, -1),
        lambda header: shift(header, "c", -8, -8),
        lambda header: header.pop("b") and None,
        lambda header: header["a"].update(shape=[7]),
        lambda header: header["a"].update(dtype="F64"),
        lambda header: header["a"].update(dtype="Q7"),
        lambda header: header["a"].update(data_offsets=[0]),
        lambda header: header["a"].pop("shape") and None,
        lambda header: header.update(a=3),
        lambda header: header.update(d={"dtype": "U8", "shape": [9], "data_offsets": [1000, 1009]}),
        lambda header: b"not JSON",
        lambda header: b"[]",
        lambda header: b"\xff\xff",
    ],
)
def test_a_header_that_lies_is_found(small: Path, change: Callable[[Header], Any]):
    rewrite(small, change)
    with pytest.raises(BundleError, match=r"small\.safetensors.*expected.*Copy it again"):
        stored_tensors(small)


@pytest.mark.parametrize("keep", [0, 5, 8, 40, -1])
def test_a_truncated_file_is_found(small: Path, keep: int):
    small.write_bytes(small.read_bytes()[:keep])
    with pytest.raises(BundleError, match="small.safetensors"):
        stored_tensors(small)


def test_bytes_after_the_end_are_found(small: Path):
    rewrite(small, lambda header: None, b"tail")
    with pytest.raises(BundleError, match="as its header says"):
        stored_tensors(small)


def test_a_header_longer_than_the_file_is_found(small: Path):
    small.write_bytes(struct.pack("<Q", 1 << 60) + small.read_bytes()[8:])
    with pytest.raises(BundleError, match="small.safetensors"):
        stored_tensors(small)


def test_a_model_with_a_tensor_missing_or_damaged_names_the_file(tmp_path: Path):
    model = random_model()
    tensors = model_tensors(model)
    path = tmp_path / "w.safetensors"
    write_tensors(path, {name: value for name, value in tensors.items() if name != "layers.2.down.scale"})
    with pytest.raises(BundleError, match=r"w\.safetensors.*layers\.2\.down\.scale"):
        read_model(path, model.config, model.layout, "post_rope")
    write_tensors(path, {**tensors, "layers.2.down.scale": np.zeros(3, np.float32)})
    with pytest.raises(BundleError, match=r"w\.safetensors"):
        read_model(path, model.config, model.layout, "post_rope")
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(BundleError, match=r"w\.safetensors"):
        read_model(path, model.config, model.layout, "post_rope")


def test_the_graph_is_checked_and_opens(tmp_path: Path):
    model = random_model(4)
    write_tensors(tmp_path / WEIGHTS, model_tensors(model))
    write_graph(tmp_path, model.config, model.layout, "post_rope")
    assert {file.name for file in tmp_path.iterdir()} == {BACKBONE, WEIGHTS}
