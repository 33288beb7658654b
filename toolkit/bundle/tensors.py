"""The integer model as named tensors in a safetensors file, which is also the graph's external data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ..config import BackboneConfig, FrameLayout
from ..errors import BundleError
from ..numerics.attention import AttentionScales
from ..numerics.rope import rotary_tables
from ..numerics.tables import ATTENTION_BITS, SAMPLE_BITS, exp2_table, sigmoid_table
from ..numerics.weights import IntegerModel, LayerWeights, LinearWeights
from .tensor_file import StoredTensor, TensorSpec, read_tensor, stored_tensors

__all__ = [
    "StoredLayers",
    "head_tensors",
    "layer_tensors",
    "model_tensors",
    "pack_int4",
    "planned_tensors",
    "read_model",
    "table_tensors",
    "unpack_int4",
]

ZERO_POINT = 128
IN_MEMORY = 1 << 30  # bytes of weights; larger models are computed from their file, layer by layer


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
    tensors = table_tensors(model.config, model.layout)
    tensors |= {"embedding": model.embedding} | head_tensors(model.head, model.final_gain)
    for index, layer in enumerate(model.layers):
        tensors |= layer_tensors(index, layer, model.config)
    return tensors


def table_tensors(config: BackboneConfig, layout: FrameLayout) -> dict[str, np.ndarray]:
    """What follows from the shape of a model alone."""
    cos, sin = rotary_tables(config, layout.positions)
    return {
        "rotary.cos": cos,
        "rotary.sin": sin,
        "table.attention": exp2_table(ATTENTION_BITS),
        "table.attention.high": (exp2_table(ATTENTION_BITS) >> 8).astype(np.uint8),
        "table.attention.low": (exp2_table(ATTENTION_BITS) & 255).astype(np.uint8),
        "table.sample": exp2_table(SAMPLE_BITS),
        "table.sigmoid": sigmoid_table(),
    }


def head_tensors(head: LinearWeights, final_gain: np.ndarray) -> dict[str, np.ndarray]:
    return {"final_gain": final_gain} | _linear_tensors("head", head)


def layer_tensors(index: int, layer: LayerWeights, config: BackboneConfig) -> dict[str, np.ndarray]:
    name = f"layers.{index}"
    scales = AttentionScales.of(layer.q_scale, layer.k_scale, layer.v_scale, config.head_dim)
    tensors = {
        f"{name}.attention_gain": layer.attention_gain,
        f"{name}.mlp_gain": layer.mlp_gain,
        f"{name}.head_scale": np.concatenate([layer.q_scale, layer.k_scale, layer.v_scale]),
        f"{name}.exponent": scales.exponent.reshape(config.kv_heads, config.group, 1),
        f"{name}.v_scale": layer.v_scale.reshape(config.kv_heads, 1, 1),
        f"{name}.tas_multiplier": layer.tas_multiplier.astype(np.int64),
        f"{name}.tas_scale": np.array([layer.tas_scale], np.float64),
    }
    for part, linear in layer.linears():
        tensors |= _linear_tensors(f"{name}.{part}", linear)
    return tensors


def _linear_tensors(name: str, linear: LinearWeights) -> dict[str, np.ndarray]:
    if linear.multiplier is None:
        return {f"{name}.weight": linear.values.view(np.uint8) ^ np.uint8(ZERO_POINT), f"{name}.scale": linear.scale}
    return {
        f"{name}.weight": pack_int4(linear.values),
        f"{name}.multiplier": linear.multiplier,
        f"{name}.scale": linear.scale,
    }


def planned_tensors(config: BackboneConfig, layout: FrameLayout, group_size: int | None) -> dict[str, TensorSpec]:
    """Types and shapes of all tensors of a model to come. ``group_size``: of 4-bit weights; None: 8 bit."""
    hidden, q, kv = config.hidden, config.heads * config.head_dim, config.kv_heads * config.head_dim
    specs = {name: TensorSpec.of(array) for name, array in table_tensors(config, layout).items()}
    specs["embedding"] = TensorSpec("F16", (config.vocab, hidden))
    specs["final_gain"] = TensorSpec("F32", (hidden,))
    specs |= _planned_linear("head", hidden, layout.codes, None)
    for index in range(config.layers):
        name = f"layers.{index}"
        specs |= {
            f"{name}.attention_gain": TensorSpec("F32", (hidden,)),
            f"{name}.mlp_gain": TensorSpec("F32", (hidden,)),
            f"{name}.head_scale": TensorSpec("F32", (config.heads + 2 * config.kv_heads,)),
            f"{name}.exponent": TensorSpec("F32", (config.kv_heads, config.group, 1)),
            f"{name}.v_scale": TensorSpec("F32", (config.kv_heads, 1, 1)),
            f"{name}.tas_multiplier": TensorSpec("I64", (config.heads,)),
            f"{name}.tas_scale": TensorSpec("F64", (1,)),
        }
        specs |= _planned_linear(f"{name}.qkv", hidden, q + 2 * kv, group_size)
        specs |= _planned_linear(f"{name}.output", q, hidden, group_size)
        specs |= _planned_linear(f"{name}.gate_up", hidden, 2 * config.mlp, group_size)
        specs |= _planned_linear(f"{name}.down", config.mlp, hidden, group_size)
    return specs


def _planned_linear(name: str, inputs: int, outputs: int, group_size: int | None) -> dict[str, TensorSpec]:
    scale = {f"{name}.scale": TensorSpec("F32", (outputs,))}
    if group_size is None:
        return scale | {f"{name}.weight": TensorSpec("U8", (inputs, outputs))}
    return scale | {
        f"{name}.weight": TensorSpec("U8", (-(-inputs * outputs // 2),)),
        f"{name}.multiplier": TensorSpec("U8", (inputs // group_size, outputs)),
    }


def read_model(
    path: Path, config: BackboneConfig, layout: FrameLayout, tas_query: str
) -> tuple[IntegerModel, dict[str, np.ndarray]]:
    """The integer model and the rotary tables of a bundle's weight file.

    The layers of a file of more than ``IN_MEMORY`` bytes are read when they are asked for. BundleError if the file is
    damaged or does not hold the tensors of such a model.
    """
    stored = stored_tensors(path)
    reader = _Reader(path, stored)
    lazy = StoredLayers(reader, config)
    layers = lazy if path.stat().st_size > IN_MEMORY else tuple(lazy)
    head = reader.linear("head", config.hidden)
    model = IntegerModel(config, layout, reader("embedding"), layers, reader("final_gain"), head, tas_query)
    return model, {name: reader(name) for name in ("rotary.cos", "rotary.sin")}


class StoredLayers(Sequence[LayerWeights]):
    """The layers of a weight file, each read when it is asked for; the last one is kept."""

    def __init__(self, reader: _Reader, config: BackboneConfig) -> None:
        self._reader, self._config = reader, config
        self._last: tuple[int, LayerWeights] | None = None

    def __len__(self) -> int:
        return self._config.layers

    def __getitem__(self, index: int) -> LayerWeights:
        if not 0 <= index < len(self):
            raise IndexError(index)
        if self._last is None or self._last[0] != index:
            self._last = None  # before the next one is read: two may not fit
            self._last = index, self._reader.layer(index, self._config)
        return self._last[1]


class _Reader:
    def __init__(self, path: Path, stored: dict[str, StoredTensor]) -> None:
        self.path, self.stored = path, stored

    def __call__(self, name: str) -> np.ndarray:
        if name not in self.stored:
            raise BundleError(self.path, f"no tensor {name}", "every tensor of the model", "Export again.")
        return read_tensor(self.path, self.stored[name])

    def layer(self, index: int, config: BackboneConfig) -> LayerWeights:
        name = f"layers.{index}"
        q, k, v = np.split(self(f"{name}.head_scale"), [config.heads, config.heads + config.kv_heads])
        return LayerWeights(
            attention_gain=self(f"{name}.attention_gain"),
            qkv=self.linear(f"{name}.qkv", config.hidden),
            q_scale=q,
            k_scale=k,
            v_scale=v,
            tas_multiplier=self(f"{name}.tas_multiplier").astype(np.int32),
            tas_scale=float(self(f"{name}.tas_scale")[0]),
            output=self.linear(f"{name}.output", config.heads * config.head_dim),
            mlp_gain=self(f"{name}.mlp_gain"),
            gate_up=self.linear(f"{name}.gate_up", config.hidden),
            down=self.linear(f"{name}.down", config.mlp),
        )

    def linear(self, name: str, inputs: int) -> LinearWeights:
        weight, scale = self(f"{name}.weight"), self(f"{name}.scale")
        multiplier = self(f"{name}.multiplier") if f"{name}.multiplier" in self.stored else None
        try:
            if multiplier is None:
                values = (weight ^ np.uint8(ZERO_POINT)).view(np.int8)
            else:
                values = unpack_int4(weight, (inputs, scale.size))
            return LinearWeights(values, scale, multiplier)
        except ValueError as error:
            expected = "the weights of the model in the manifest"
            raise BundleError(self.path, f"{name}: {error}", expected, "Copy the bundle again.") from error
