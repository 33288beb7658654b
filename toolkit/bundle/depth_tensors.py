"""The depth transformer as named tensors of the bundle's weight file."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from ..config import DepthConfig
from ..errors import BundleError
from ..numerics.attention import AttentionScales
from ..numerics.tables import phi_table
from ..numerics.weights import DepthBlockWeights, DepthWeights
from .linear_tensors import TensorReader, linear_tensors, planned_linear
from .tensor_file import TensorSpec

__all__ = ["depth_tensors", "planned_depth_tensors", "read_depth"]

NORMS = ("attention", "mlp")


def depth_tensors(weights: DepthWeights, final_gain: np.ndarray) -> dict[str, np.ndarray]:
    """What a model has in place of the tensors of a head, the table of GELU among them."""
    tensors = {
        "final_gain": final_gain,
        "table.phi": phi_table(),
        "depth.codebook": weights.codebook.reshape(-1, weights.config.code_dim),
        "depth.pos_emb": weights.pos_emb,
        "depth.classifier_gain": weights.classifier_gain,
        "depth.classifier_bias": weights.classifier_bias,
    }
    for name, linear in weights.linears():
        tensors |= linear_tensors(name, linear)
    for index, block in enumerate(weights.blocks):
        tensors |= _block_tensors(f"depth.blocks.{index}", block, weights.config)
    return tensors


def _block_tensors(name: str, block: DepthBlockWeights, config: DepthConfig) -> dict[str, np.ndarray]:
    scales = AttentionScales.of(block.q_scale, block.k_scale, block.v_scale, config.head_dim)
    norms = {f"{norm}_{part}": getattr(block, f"{norm}_{part}") for norm in NORMS for part in ("gain", "bias")}
    return {f"{name}.{part}": array for part, array in norms.items()} | {
        f"{name}.head_scale": np.concatenate([block.q_scale, block.k_scale, block.v_scale]),
        f"{name}.exponent": scales.exponent.reshape(config.heads, 1, 1),
        f"{name}.v_scale": block.v_scale.reshape(config.heads, 1, 1),
    }


def planned_depth_tensors(
    config: DepthConfig, backbone_hidden: int, codes: int, group_size: int | None
) -> dict[str, TensorSpec]:
    """Types and shapes of ``depth_tensors`` of a model to come. ``group_size``: of the blocks' 4-bit weights."""
    hidden, books = config.hidden, config.books
    row = TensorSpec("F32", (hidden,))
    specs = {
        "final_gain": TensorSpec("F32", (backbone_hidden,)),
        "table.phi": TensorSpec.of(phi_table()),
        "depth.codebook": TensorSpec("F16", (books * codes, config.code_dim)),
        "depth.pos_emb": TensorSpec("F32", (config.codes_per_position, hidden)),
        "depth.classifier_gain": row,
        "depth.classifier_bias": row,
    }
    for index, (inputs, outputs) in enumerate(pairwise(_projector_widths(config, backbone_hidden))):
        specs |= planned_linear(f"projector.{index}", inputs, outputs, None, bias=True)
    specs |= planned_linear("depth.in_mlp_1", config.code_dim, hidden, None, bias=True)
    specs |= planned_linear("depth.in_mlp_2", backbone_hidden, hidden, None, bias=True)
    specs |= planned_linear("depth.classifier", hidden, codes, None, bias=True)
    for index in range(config.layers):
        name = f"depth.blocks.{index}"
        specs |= {f"{name}.{norm}_{part}": row for norm in NORMS for part in ("gain", "bias")}
        specs[f"{name}.head_scale"] = TensorSpec("F32", (3 * config.heads,))
        specs |= {f"{name}.{part}": TensorSpec("F32", (config.heads, 1, 1)) for part in ("exponent", "v_scale")}
        specs |= planned_linear(f"{name}.qkv", hidden, 3 * hidden, group_size, bias=True)
        specs |= planned_linear(f"{name}.output", hidden, hidden, group_size, bias=True)
        specs |= planned_linear(f"{name}.fc1", hidden, config.mlp, group_size, bias=True)
        specs |= planned_linear(f"{name}.fc2", config.mlp, hidden, group_size, bias=True)
    return specs


def read_depth(reader: TensorReader, config: DepthConfig, backbone_hidden: int, codes: int) -> DepthWeights:
    """BundleError if a tensor is missing or the codebook is of another shape."""
    books = config.books
    codebook = reader("depth.codebook")
    if codebook.shape != (books * codes, config.code_dim):
        expected = f"{books} x {codes} rows of {config.code_dim}"
        raise BundleError(reader.path, f"depth.codebook {codebook.shape}", expected, "Export again.")
    widths = _projector_widths(config, backbone_hidden)
    return DepthWeights(
        config=config,
        codebook=codebook.reshape(books, codes, config.code_dim),
        projector=tuple(reader.linear(f"projector.{i}", inputs) for i, inputs in enumerate(widths[:-1])),
        in_mlp_1=reader.linear("depth.in_mlp_1", config.code_dim),
        in_mlp_2=reader.linear("depth.in_mlp_2", backbone_hidden),
        pos_emb=reader("depth.pos_emb"),
        blocks=tuple(_read_block(reader, f"depth.blocks.{index}", config) for index in range(config.layers)),
        classifier_gain=reader("depth.classifier_gain"),
        classifier_bias=reader("depth.classifier_bias"),
        classifier=reader.linear("depth.classifier", config.hidden),
    )


def _read_block(reader: TensorReader, name: str, config: DepthConfig) -> DepthBlockWeights:
    q_scale, k_scale, v_scale = np.split(reader(f"{name}.head_scale"), 3)
    norms = {f"{norm}_{part}": reader(f"{name}.{norm}_{part}") for norm in NORMS for part in ("gain", "bias")}
    inputs = {"qkv": config.hidden, "output": config.hidden, "fc1": config.hidden, "fc2": config.mlp}
    linears = {part: reader.linear(f"{name}.{part}", width) for part, width in inputs.items()}
    return DepthBlockWeights(q_scale=q_scale, k_scale=k_scale, v_scale=v_scale, **norms, **linears)


def _projector_widths(config: DepthConfig, backbone_hidden: int) -> tuple[int, ...]:
    return config.code_dim, *[backbone_hidden] * config.projector_layers
