"""The compiler: a model to the program the engine walks and the weights its ports read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from ...toolkit.config import DepthConfig
from ...toolkit.errors import UsageError
from ...toolkit.numerics.attention import AttentionScales
from ...toolkit.numerics.rope import rotary_tables
from ...toolkit.numerics.weights import IntegerModel, LinearWeights
from ...toolkit.program.descriptors import DEPTH_LAYER, Opcode, node_sequence
from ...toolkit.program.engine import EngineConfig
from ...toolkit.program.memory import BEAT_BYTES
from ...toolkit.program.packed import WEIGHTS, Packed
from .program import DEPTH_FIELDS, LINEAR_FIELDS, ProgramPlan
from .weights import deep_head_words, head_words, interleave_gate_up, pack_linear, pack_words

__all__ = ["NODES_OF", "node_names", "pack_model", "write_packed"]

NODES_OF = {
    Opcode.NORM_ATTENTION: ("RMSNorm",),
    Opcode.LINEAR_QKV: ("QuantLinear",),
    Opcode.HEADS: ("RotaryEmbedding", "TemporalAttentionScore", "ReplayDecision"),
    Opcode.ATTENTION: ("Attention", "QuantizeRows"),
    Opcode.LINEAR_OUTPUT: ("QuantLinear",),
    Opcode.NORM_MLP: ("ReplayMLP",),
    Opcode.LINEAR_GATE_UP: (),
    Opcode.LINEAR_DOWN: (),
    Opcode.NORM_FINAL: ("RMSNorm",),
    Opcode.LINEAR_LOGITS: ("QuantLinear",),
    Opcode.SAMPLE: ("Sample",),
    Opcode.PROJECT: ("QuantizeRows", "QuantLinear"),
    Opcode.DEPTH_HIDDEN: ("QuantLinear",),
    Opcode.DEPTH_CODES: ("QuantizeRows", "QuantLinear"),
    Opcode.DEPTH_NORM_ATTENTION: ("LayerNorm",),
    Opcode.DEPTH_QKV: ("QuantLinear",),
    Opcode.DEPTH_HEADS: ("QuantizeHeads",),
    Opcode.DEPTH_ATTENTION: ("Attention", "QuantizeRows"),
    Opcode.DEPTH_OUTPUT: ("QuantLinear",),
    Opcode.DEPTH_NORM_MLP: ("LayerNorm",),
    Opcode.DEPTH_FC1: ("QuantLinear", "GELU", "QuantizeRows"),
    Opcode.DEPTH_FC2: ("QuantLinear",),
    Opcode.DEPTH_NORM: ("LayerNorm",),
    Opcode.DEPTH_LOGITS: ("QuantLinear",),
    Opcode.DEPTH_SAMPLE: ("Sample", "CodeEmbedding"),
}
"""The functions of the graphs that a descriptor stands for; ReplayMLP takes three of them."""

WITHOUT_WEIGHTS = frozenset(
    (Opcode.EMBED, Opcode.ATTENTION, Opcode.SAMPLE, Opcode.DEPTH_ATTENTION, Opcode.DEPTH_SAMPLE)
)


def node_names(layers: int, depth: DepthConfig | None = None) -> list[str]:
    """The graphs' functions in the order the program stands for them, any linear layer as QuantLinear."""
    names = []
    for opcode, layer in node_sequence(layers, depth):
        if opcode == Opcode.EMBED and depth is not None:
            names += ["CodeEmbedding"] * depth.codes_per_position
        names += NODES_OF.get(opcode, ())
        if opcode == Opcode.PROJECT and layer < depth.projector_layers - 1:
            names.append("GELU")
    return names


def pack_model(model: IntegerModel, engine: EngineConfig) -> Packed:
    """Program and weights of a model. UsageError if the engine cannot run it."""
    if model.criterion != "tas":
        found, expected = f"replay decided by {model.criterion}", "by TAS, all that an overlay's engine decides by"
        raise UsageError("--board", found, expected, "Export it without --board.")
    int4 = {name: linear.bit_width == 4 for name, linear in model.linears()}
    depth = None if model.depth is None else model.depth.config
    plan = ProgramPlan(
        model.config, model.layout, int4, engine, model.tas_query, tas_heads=model.tas_heads, depth=depth
    )
    parts, payloads = zip(*_parts(model, plan), strict=True)
    weights = np.concatenate([part.reshape(-1, BEAT_BYTES) for part in parts])
    return Packed(plan.program(), weights, 1 - sum(payloads) / weights.size)


def write_packed(
    folder: Path, model: IntegerModel, plan: ProgramPlan, advance: Callable[[int, int], None] = lambda done, total: None
) -> None:
    """The same into the folder's files, a node at a time: of a model read layer by layer no more than one is held."""
    Packed(plan.program(), np.zeros((0, BEAT_BYTES), np.uint8)).write(folder)
    with (folder / WEIGHTS).open("wb") as file:
        for done, (part, _) in enumerate(_parts(model, plan)):
            part.tofile(file)
            advance(min(done + 1, len(plan.nodes)), len(plan.nodes))
    advance(len(plan.nodes), len(plan.nodes))


def _parts(model: IntegerModel, plan: ProgramPlan) -> Iterator[tuple[np.ndarray, int]]:
    """What the memory holds, in order, each with how many bytes of it carry something."""
    cos, sin = rotary_tables(model.config, model.layout.positions)
    tables = [model.embedding, np.concatenate([cos, sin], axis=1)]
    if model.depth is not None:
        tables += [model.depth.codebook, model.depth.pos_emb]
    for table in tables:
        yield table.view(np.uint8), table.nbytes
    for node in plan.nodes:
        opcode = Opcode(node["opcode"])
        streams, payload = _streams(model, opcode, node["layer"])
        if streams is None:
            continue
        if streams.shape[1] != node["beats"]:
            raise AssertionError(f"{opcode.name}: {streams.shape[1]} beats, planned {node['beats']}")
        yield streams, payload


def _streams(model: IntegerModel, opcode: Opcode, index: int) -> tuple[np.ndarray | None, int]:
    """The four ports' streams of a node, and how many bytes of them carry something."""
    if opcode in WITHOUT_WEIGHTS:
        return None, 0
    if opcode in DEPTH_FIELDS or opcode in DEPTH_LAYER or opcode == Opcode.DEPTH_NORM:
        return _deep_streams(model, opcode, index)
    layer = model.layers[index]
    if opcode in LINEAR_FIELDS:
        linear = model.head if opcode == Opcode.LINEAR_LOGITS else getattr(layer, LINEAR_FIELDS[opcode])
        if opcode == Opcode.LINEAR_GATE_UP:
            linear = interleave_gate_up(linear)
        return pack_linear(linear), _payload(linear)
    words = {
        Opcode.NORM_ATTENTION: lambda: layer.attention_gain,
        Opcode.NORM_MLP: lambda: layer.mlp_gain,
        Opcode.NORM_FINAL: lambda: model.final_gain,
        Opcode.HEADS: lambda: head_words(
            layer, AttentionScales.of(layer.q_scale, layer.k_scale, layer.v_scale, model.config.head_dim).exponent
        ),
    }[opcode]
    return pack_words(np.ascontiguousarray(words())), words().size * 4


def _deep_streams(model: IntegerModel, opcode: Opcode, index: int) -> tuple[np.ndarray, int]:
    """The same of a node that comes with a depth transformer."""
    depth = model.depth
    if opcode == Opcode.DEPTH_NORM:
        return _norm_streams(depth.classifier_gain, depth.classifier_bias)
    outside = {
        Opcode.DEPTH_HIDDEN: lambda: depth.in_mlp_2,
        Opcode.DEPTH_CODES: lambda: depth.in_mlp_1,
        Opcode.DEPTH_LOGITS: lambda: depth.classifier,
        Opcode.PROJECT: lambda: depth.projector[index],
    }
    if opcode in outside:
        linear = outside[opcode]()
        return pack_linear(linear), _payload(linear)
    block = depth.blocks[index]
    if opcode == Opcode.DEPTH_NORM_ATTENTION:
        return _norm_streams(block.attention_gain, block.attention_bias)
    if opcode == Opcode.DEPTH_NORM_MLP:
        return _norm_streams(block.mlp_gain, block.mlp_bias)
    if opcode == Opcode.DEPTH_HEADS:
        words = deep_head_words(block, depth.config.head_dim)
        return pack_words(words), words.nbytes
    linear = getattr(block, DEPTH_FIELDS[opcode].rpartition(".")[2])
    return pack_linear(linear), _payload(linear)


def _norm_streams(gain: np.ndarray, bias: np.ndarray) -> tuple[np.ndarray, int]:
    """Gains, then biases."""
    return np.concatenate([pack_words(gain), pack_words(bias)], axis=1), gain.nbytes + bias.nbytes


def _payload(linear: LinearWeights) -> int:
    """Bytes of a linear layer without the padding of its tiles."""
    multipliers = 0 if linear.multiplier is None else linear.values.size // 32
    words = linear.scale.size * (1 if linear.bias is None else 2)
    return linear.values.size * linear.bit_width // 8 + multipliers + 4 * words
