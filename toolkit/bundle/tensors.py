"""The integer model as named tensors in a safetensors file, which is also the graph's external data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ..config import BackboneConfig, DepthConfig, FrameLayout
from ..errors import BundleError
from ..numerics.attention import AttentionScales
from ..numerics.rope import rotary_tables
from ..numerics.tables import ATTENTION_BITS, SAMPLE_BITS, exp2_table, sigmoid_table
from ..numerics.weights import IntegerModel, LayerWeights, LinearWeights
from .depth_tensors import depth_tensors, planned_depth_tensors, read_depth
from .linear_tensors import TensorReader, linear_tensors, pack_int4, planned_linear, unpack_int4
from .tensor_file import StoredTensor, TensorSpec, stored_tensors

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

IN_MEMORY = 1 << 30  # bytes of weights; larger models are computed from their file, layer by layer


def model_tensors(model: IntegerModel) -> dict[str, np.ndarray]:
    """Every tensor a back end needs, under the names the graph uses; 4-bit values packed, int8 as uint8 + 128."""
    tensors = table_tensors(model.config, model.layout) | {"embedding": model.embedding}
    if model.depth is None:
        tensors |= head_tensors(model.head, model.final_gain)
    else:
        tensors |= depth_tensors(model.depth, model.final_gain)
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
    return {"final_gain": final_gain} | linear_tensors("head", head)


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
        tensors |= linear_tensors(f"{name}.{part}", linear)
    return tensors


def planned_tensors(
    config: BackboneConfig, layout: FrameLayout, group_size: int | None, depth: DepthConfig | None = None
) -> dict[str, TensorSpec]:
    """Types and shapes of all tensors of a model to come. ``group_size``: of 4-bit weights; None: 8 bit."""
    hidden, q, kv = config.hidden, config.heads * config.head_dim, config.kv_heads * config.head_dim
    specs = {name: TensorSpec.of(array) for name, array in table_tensors(config, layout).items()}
    specs["embedding"] = TensorSpec("F16", (config.vocab, hidden))
    if depth is None:
        specs["final_gain"] = TensorSpec("F32", (hidden,))
        specs |= planned_linear("head", hidden, layout.codes, None)
    else:
        specs |= planned_depth_tensors(depth, hidden, layout.codes, group_size)
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
        specs |= planned_linear(f"{name}.qkv", hidden, q + 2 * kv, group_size, config.has_bias("qkv"))
        specs |= planned_linear(f"{name}.output", q, hidden, group_size, config.has_bias("output"))
        specs |= planned_linear(f"{name}.gate_up", hidden, 2 * config.mlp, group_size, config.has_bias("gate_up"))
        specs |= planned_linear(f"{name}.down", config.mlp, hidden, group_size, config.has_bias("down"))
    return specs


def read_model(
    path: Path,
    config: BackboneConfig,
    layout: FrameLayout,
    tas_query: str,
    depth: DepthConfig | None = None,
    criterion: str = "tas",
    tas_heads: str = "mean",
) -> tuple[IntegerModel, dict[str, np.ndarray]]:
    """The integer model and the rotary tables of a bundle's weight file.

    The layers of a file of more than ``IN_MEMORY`` bytes are read when they are asked for. BundleError if the file is
    damaged or does not hold the tensors of such a model.
    """
    stored = stored_tensors(path)
    _check_biases(path, stored, config)
    reader = TensorReader(path, stored)
    lazy = StoredLayers(reader, config)
    layers = lazy if path.stat().st_size > IN_MEMORY else tuple(lazy)
    model = IntegerModel(
        config=config,
        layout=layout,
        embedding=reader("embedding"),
        layers=layers,
        final_gain=reader("final_gain"),
        head=reader.linear("head", config.hidden) if depth is None else None,
        tas_query=tas_query,
        depth=depth and read_depth(reader, depth, config.hidden, layout.codes),
        criterion=criterion,
        tas_heads=tas_heads,
    )
    return model, {name: reader(name) for name in ("rotary.cos", "rotary.sin")}


def _check_biases(path: Path, stored: dict[str, StoredTensor], config: BackboneConfig) -> None:
    """BundleError where a layer of the file has a bias and the config says it has none, or the other way round."""
    for index in range(config.layers):
        for part in ("qkv", "output", "gate_up", "down"):
            name, expected = f"layers.{index}.{part}.bias", config.has_bias(part)
            if (name in stored) != expected:
                found = f"no tensor {name}" if expected else f"a tensor {name}"
                raise BundleError(path, found, "biases as the manifest says", "Export again.")


class StoredLayers(Sequence[LayerWeights]):
    """The layers of a weight file, each read when it is asked for; the last one is kept."""

    def __init__(self, reader: TensorReader, config: BackboneConfig) -> None:
        self._reader, self._config = reader, config
        self._last: tuple[int, LayerWeights] | None = None

    def __len__(self) -> int:
        return self._config.layers

    def __getitem__(self, index: int) -> LayerWeights:
        if not 0 <= index < len(self):
            raise IndexError(index)
        if self._last is None or self._last[0] != index:
            self._last = None  # before the next one is read: two may not fit
            self._last = index, _read_layer(self._reader, index, self._config)
        return self._last[1]


def _read_layer(reader: TensorReader, index: int, config: BackboneConfig) -> LayerWeights:
    name = f"layers.{index}"
    q, k, v = np.split(reader(f"{name}.head_scale"), [config.heads, config.heads + config.kv_heads])
    return LayerWeights(
        attention_gain=reader(f"{name}.attention_gain"),
        qkv=reader.linear(f"{name}.qkv", config.hidden),
        q_scale=q,
        k_scale=k,
        v_scale=v,
        tas_multiplier=reader(f"{name}.tas_multiplier").astype(np.int32),
        tas_scale=float(reader(f"{name}.tas_scale")[0]),
        output=reader.linear(f"{name}.output", config.heads * config.head_dim),
        mlp_gain=reader(f"{name}.mlp_gain"),
        gate_up=reader.linear(f"{name}.gate_up", config.hidden),
        down=reader.linear(f"{name}.down", config.mlp),
    )
