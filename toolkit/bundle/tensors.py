"""The integer model as named tensors in a safetensors file, which is also the graph's external data."""

from __future__ import annotations

import json
import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from ..config import BackboneConfig, FrameLayout
from ..errors import BundleError
from ..numerics.attention import AttentionScales
from ..numerics.rope import rotary_tables
from ..numerics.tables import ATTENTION_BITS, SAMPLE_BITS, exp2_table, sigmoid_table
from ..numerics.weights import IntegerModel, LayerWeights, LinearWeights

__all__ = ["StoredTensor", "model_tensors", "pack_int4", "read_model", "stored_tensors", "unpack_int4", "write_tensors"]

ZERO_POINT = 128
ITEM_BYTES = {
    "BOOL": 1,
    "U8": 1,
    "I8": 1,
    "F16": 2,
    "BF16": 2,
    "U16": 2,
    "I16": 2,
    "F32": 4,
    "I32": 4,
    "F64": 8,
    "I64": 8,
}


@dataclass(frozen=True)
class StoredTensor:
    """Where a tensor lies in its file: bytes ``offset .. offset + length``."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    length: int


def pack_int4(values: np.ndarray) -> np.ndarray:
    """int8 in -8..7, flattened row-major -> two to a byte, the first in the low half (ONNX's int4 layout)."""
    nibbles = (values.reshape(-1) & 15).astype(np.uint8)
    if nibbles.size % 2:
        nibbles = np.append(nibbles, np.uint8(0))
    return nibbles[0::2] | (nibbles[1::2] << 4)


def unpack_int4(packed: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """The inverse: int8 of ``shape``."""
    nibbles = np.stack([packed & 15, packed >> 4], axis=1).reshape(-1)[: shape[0] * shape[1]].astype(np.int8)
    return np.where(nibbles > 7, nibbles - 16, nibbles).astype(np.int8).reshape(shape)


def model_tensors(model: IntegerModel) -> dict[str, np.ndarray]:
    """Every tensor a back end needs, under the names the graph uses; 4-bit values packed, int8 as uint8 + 128."""
    cos, sin = rotary_tables(model.config, model.layout.positions)
    tensors = {
        "embedding": model.embedding,
        "final_gain": model.final_gain,
        "rotary.cos": cos,
        "rotary.sin": sin,
        "table.attention": exp2_table(ATTENTION_BITS),
        "table.attention.high": (exp2_table(ATTENTION_BITS) >> 8).astype(np.uint8),
        "table.attention.low": (exp2_table(ATTENTION_BITS) & 255).astype(np.uint8),
        "table.sample": exp2_table(SAMPLE_BITS),
        "table.sigmoid": sigmoid_table(),
    }
    for name, linear in model.linears():
        tensors |= _linear_tensors(name, linear)
    for index, layer in enumerate(model.layers):
        tensors |= _layer_tensors(f"layers.{index}", layer, model.config)
    return tensors


def _linear_tensors(name: str, linear: LinearWeights) -> dict[str, np.ndarray]:
    if linear.multiplier is None:
        weight = (linear.values.astype(np.int16) + ZERO_POINT).astype(np.uint8)
        return {f"{name}.weight": weight, f"{name}.scale": linear.scale}
    return {
        f"{name}.weight": pack_int4(linear.values),
        f"{name}.multiplier": linear.multiplier,
        f"{name}.scale": linear.scale,
    }


def _layer_tensors(name: str, layer: LayerWeights, config: BackboneConfig) -> dict[str, np.ndarray]:
    scales = AttentionScales.of(layer.q_scale, layer.k_scale, layer.v_scale, config.head_dim)
    return {
        f"{name}.attention_gain": layer.attention_gain,
        f"{name}.mlp_gain": layer.mlp_gain,
        f"{name}.head_scale": np.concatenate([layer.q_scale, layer.k_scale, layer.v_scale]),
        f"{name}.exponent": scales.exponent.reshape(config.kv_heads, config.group, 1),
        f"{name}.v_scale": layer.v_scale.reshape(config.kv_heads, 1, 1),
        f"{name}.tas_multiplier": layer.tas_multiplier.astype(np.int64),
        f"{name}.tas_scale": np.array([layer.tas_scale], np.float64),
    }


def write_tensors(path: Path, tensors: dict[str, np.ndarray]) -> None:
    save_file({name: np.ascontiguousarray(value) for name, value in tensors.items()}, path)


def stored_tensors(path: Path) -> dict[str, StoredTensor]:
    """Names, types and byte ranges from a safetensors header, without reading the data.

    BundleError if the header does not describe the file: data past its end, bytes nobody names or two do, a tensor
    whose bytes are not those of its type and shape.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(8)
        length = struct.unpack("<Q", head)[0] if len(head) == 8 else size
        if length + 8 > size:
            raise BundleError(
                path, f"{size} bytes with a header of {length}", "a complete safetensors file", "Copy it again."
            )
        text = file.read(length)
    try:
        header = json.loads(text)
        header.pop("__metadata__", None)
        stored = {name: _stored(name, entry, 8 + length) for name, entry in header.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BundleError(path, f"a header that is none ({error})", "a safetensors file", "Copy it again.") from error
    end = 8 + length
    for tensor in sorted(stored.values(), key=lambda tensor: (tensor.offset, tensor.length)):
        if tensor.offset != end:
            raise BundleError(
                path, f"{tensor.name} at byte {tensor.offset}", f"byte {end}, where the last ends", "Copy it again."
            )
        end += tensor.length
    if end != size:
        raise BundleError(path, f"{size} bytes", f"{end} as its header says", "Copy it again.")
    return stored


def _stored(name: str, entry: dict[str, Any], start: int) -> StoredTensor:
    """ValueError if the byte range is not as long as type and shape say."""
    dtype, shape, (begin, end) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
    expected = math.prod(shape) * ITEM_BYTES[dtype]
    if end - begin != expected:
        raise ValueError(f"{name} has {end - begin} bytes; expected {expected} for {dtype} {list(shape)}")
    return StoredTensor(name, dtype, shape, start + begin, end - begin)


def read_model(
    path: Path, config: BackboneConfig, layout: FrameLayout, tas_query: str
) -> tuple[IntegerModel, dict[str, np.ndarray]]:
    """The integer model and all stored tensors (rotary tables among them) of a bundle's weight file.

    BundleError if the file is damaged or does not hold the tensors of such a model.
    """
    try:
        tensors = load_file(path)
        layers = tuple(_read_layer(tensors, f"layers.{index}", config) for index in range(config.layers))
        head = _read_linear(tensors, "head", config.hidden)
        return IntegerModel(
            config, layout, tensors["embedding"], layers, tensors["final_gain"], head, tas_query
        ), tensors
    except KeyError as error:
        raise BundleError(path, f"no tensor {error}", "every tensor of the model", "Export again.") from error
    except (OSError, SafetensorError, ValueError) as error:
        raise BundleError(
            path, str(error), "the weights of the model in the manifest", "Copy the bundle again."
        ) from error


def _read_layer(tensors: dict[str, np.ndarray], name: str, config: BackboneConfig) -> LayerWeights:
    q, k, v = np.split(tensors[f"{name}.head_scale"], [config.heads, config.heads + config.kv_heads])
    return LayerWeights(
        attention_gain=tensors[f"{name}.attention_gain"],
        qkv=_read_linear(tensors, f"{name}.qkv", config.hidden),
        q_scale=q,
        k_scale=k,
        v_scale=v,
        tas_multiplier=tensors[f"{name}.tas_multiplier"].astype(np.int32),
        tas_scale=float(tensors[f"{name}.tas_scale"][0]),
        output=_read_linear(tensors, f"{name}.output", config.heads * config.head_dim),
        mlp_gain=tensors[f"{name}.mlp_gain"],
        gate_up=_read_linear(tensors, f"{name}.gate_up", config.hidden),
        down=_read_linear(tensors, f"{name}.down", config.mlp),
    )


def _read_linear(tensors: dict[str, np.ndarray], name: str, inputs: int) -> LinearWeights:
    weight, scale = tensors[f"{name}.weight"], tensors[f"{name}.scale"]
    multiplier = tensors.get(f"{name}.multiplier")
    if multiplier is None:
        values = (weight.astype(np.int16) - ZERO_POINT).astype(np.int8)
    else:
        values = unpack_int4(weight, (inputs, scale.size))
    return LinearWeights(values, scale, multiplier)
