"""The compiler: a model to the program the engine walks and the weights its ports read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from ...toolkit.config import BackboneConfig, FrameLayout
from ...toolkit.errors import UsageError
from ...toolkit.numerics.attention import AttentionScales
from ...toolkit.numerics.rope import rotary_tables
from ...toolkit.numerics.weights import IntegerModel
from ...toolkit.program.descriptors import (
    MODEL,
    NODE,
    NODE_BIAS,
    NODE_INT4,
    PRE_ROPE,
    TAS_HEADS_CODES,
    Opcode,
    node_sequence,
)
from ...toolkit.program.engine import EngineConfig
from ...toolkit.program.memory import BEAT_BYTES, PORTS
from ...toolkit.program.packed import WEIGHTS, Packed
from .weights import LinearPlan, head_words, interleave_gate_up, pack_linear, pack_words

__all__ = ["NODES_OF", "ProgramPlan", "node_names", "pack_model", "write_packed"]

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
}
"""The functions of the graph that a descriptor stands for; ReplayMLP takes three of them."""

LINEAR_FIELDS = {
    Opcode.LINEAR_QKV: "qkv",
    Opcode.LINEAR_OUTPUT: "output",
    Opcode.LINEAR_GATE_UP: "gate_up",
    Opcode.LINEAR_DOWN: "down",
    Opcode.LINEAR_LOGITS: "head",
}


class ProgramPlan:
    """Descriptors and addresses of a model of a given shape; needs no weights.

    ``int4``: whether a linear layer has 4-bit weights, by its name (``qkv``, or ``layers.3.qkv`` where layers differ).

    UsageError if the engine is too small for the model.
    """

    def __init__(
        self,
        config: BackboneConfig,
        layout: FrameLayout,
        int4: dict[str, bool],
        engine: EngineConfig,
        tas_query: str = "post_rope",
        *,
        tas_heads: str = "mean",
    ) -> None:
        engine.check(config, layout)
        self.config, self.layout, self.int4, self.engine = config, layout, int4, engine
        self.modes = (PRE_ROPE if tas_query == "pre_rope" else 0) | TAS_HEADS_CODES[tas_heads]
        self.embedding = 0
        self.rotary = config.vocab * config.hidden // 8
        self.end = self.rotary + layout.positions * config.head_dim // 2
        self.nodes = [self._node(opcode, layer) for opcode, layer in node_sequence(config.layers)]

    @property
    def bytes(self) -> int:
        """Of program and weights."""
        return BEAT_BYTES * (self.end + 4 * (1 + len(self.nodes)))

    def program(self) -> np.ndarray:
        """(descriptors, 16) uint32."""
        config, layout = self.config, self.layout
        header = MODEL.pack(
            opcode=Opcode.MODEL_HEADER | self.modes,
            build_id=self.engine.build_id,
            layers=config.layers,
            hidden=config.hidden,
            heads=config.heads,
            kv_heads=config.kv_heads,
            head_dim=config.head_dim,
            mlp=config.mlp,
            codes=layout.codes,
            code_offset=layout.code_offset,
            vocab=config.vocab,
            prompt_length=layout.prompt_length,
            places=layout.tokens_per_frame,
            positions=layout.positions,
            embedding=self.embedding,
            rotary=self.rotary,
        )
        return np.stack([header, *(NODE.pack(**node) for node in self.nodes)])

    def linear(self, opcode: Opcode, layer: int = 0) -> LinearPlan:
        """Shape of the linear layer behind an opcode."""
        config, field = self.config, LINEAR_FIELDS[opcode]
        q = config.heads * config.head_dim
        inputs, outputs = {
            "qkv": (config.hidden, q + 2 * config.kv_heads * config.head_dim),
            "output": (q, config.hidden),
            "gate_up": (config.hidden, 2 * config.mlp),
            "down": (config.mlp, config.hidden),
            "head": (config.hidden, self.layout.codes),
        }[field]
        own = f"layers.{layer}.{field}"
        int4 = self.int4[own] if own in self.int4 else self.int4[field]
        return LinearPlan(inputs, outputs, int4, config.has_bias(field))

    def _node(self, opcode: Opcode, layer: int) -> dict[str, float]:
        config = self.config
        node = {"opcode": opcode, "flags": 0, "layer": layer, "inputs": 0, "outputs": 0, "beats": 0, "eps": 0.0}
        if opcode in LINEAR_FIELDS:
            plan = self.linear(opcode, layer)
            node |= {"inputs": plan.inputs, "outputs": plan.outputs, "beats": plan.port_beats}
            node["flags"] = (NODE_INT4 if plan.int4 else 0) | (NODE_BIAS if plan.bias else 0)
        elif opcode in (Opcode.NORM_ATTENTION, Opcode.NORM_MLP, Opcode.NORM_FINAL):
            node |= {"beats": -(-config.hidden // (4 * PORTS)), "eps": config.norm_eps}
        elif opcode == Opcode.HEADS:
            node["beats"] = -(-3 * (config.heads + config.kv_heads) // (4 * PORTS))
        node["address"] = self.end
        self.end += PORTS * node["beats"]
        return node


def node_names(layers: int) -> list[str]:
    """The graph's functions in the order the program stands for them, 4-bit linear layers as QuantLinear too."""
    return [name for opcode, _ in node_sequence(layers) for name in NODES_OF.get(opcode, ())]


def pack_model(model: IntegerModel, engine: EngineConfig) -> Packed:
    """Program and weights of a model. UsageError if the engine cannot run it."""
    if model.depth is not None:
        raise UsageError(
            "--board",
            "a model with a depth transformer",
            "one that an overlay's engine runs, with one code a position",
            "Export it without --board.",
        )
    if model.criterion != "tas":
        found, expected = f"replay decided by {model.criterion}", "by TAS, all that an overlay's engine decides by"
        raise UsageError("--board", found, expected, "Export it without --board.")
    int4 = {name: linear.bit_width == 4 for name, linear in model.linears()}
    plan = ProgramPlan(model.config, model.layout, int4, engine, model.tas_query, tas_heads=model.tas_heads)
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
    for table in (model.embedding, np.concatenate([cos, sin], axis=1)):
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
    if opcode in (Opcode.EMBED, Opcode.ATTENTION, Opcode.SAMPLE):
        return None, 0
    layer = model.layers[index]
    if opcode in LINEAR_FIELDS:
        linear = model.head if opcode == Opcode.LINEAR_LOGITS else getattr(layer, LINEAR_FIELDS[opcode])
        if opcode == Opcode.LINEAR_GATE_UP:
            linear = interleave_gate_up(linear)
        multipliers = 0 if linear.multiplier is None else linear.values.size // 32
        words = linear.scale.size * (1 if linear.bias is None else 2)
        return pack_linear(linear), linear.values.size * linear.bit_width // 8 + multipliers + 4 * words
    words = {
        Opcode.NORM_ATTENTION: lambda: layer.attention_gain,
        Opcode.NORM_MLP: lambda: layer.mlp_gain,
        Opcode.NORM_FINAL: lambda: model.final_gain,
        Opcode.HEADS: lambda: head_words(
            layer, AttentionScales.of(layer.q_scale, layer.k_scale, layer.v_scale, model.config.head_dim).exponent
        ),
    }[opcode]
    return pack_words(np.ascontiguousarray(words())), words().size * 4
