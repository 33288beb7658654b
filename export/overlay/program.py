"""The program of a model of a given shape: its descriptors, and where everything lies that they name."""

from __future__ import annotations

import numpy as np

from ...toolkit.config import BackboneConfig, DepthConfig, FrameLayout
from ...toolkit.program.descriptors import (
    DEPTH,
    DEPTH_LAYER,
    MODEL,
    MODEL_DEPTH,
    NODE,
    NODE_BIAS,
    NODE_INT4,
    PRE_ROPE,
    TAS_HEADS_CODES,
    WORDS,
    Opcode,
    node_sequence,
)
from ...toolkit.program.engine import EngineConfig
from ...toolkit.program.memory import BEAT_BYTES, PORTS
from .weights import LinearPlan

__all__ = ["DEPTH_FIELDS", "LINEAR_FIELDS", "ProgramPlan", "int4_linears"]

DEPTH_FIELDS = {
    Opcode.DEPTH_HIDDEN: "depth.in_mlp_2",
    Opcode.DEPTH_CODES: "depth.in_mlp_1",
    Opcode.DEPTH_QKV: "depth.blocks.{}.qkv",
    Opcode.DEPTH_OUTPUT: "depth.blocks.{}.output",
    Opcode.DEPTH_FC1: "depth.blocks.{}.fc1",
    Opcode.DEPTH_FC2: "depth.blocks.{}.fc2",
    Opcode.DEPTH_LOGITS: "depth.classifier",
    Opcode.PROJECT: "projector.{}",
}
"""Names in a bundle of the linear layers that a depth transformer brings, all of them with biases."""

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
        depth: DepthConfig | None = None,
    ) -> None:
        engine.check(config, layout, depth)
        self.config, self.layout, self.int4, self.engine, self.depth = config, layout, int4, engine, depth
        self.modes = (PRE_ROPE if tas_query == "pre_rope" else 0) | TAS_HEADS_CODES[tas_heads]
        self.embedding = 0
        self.rotary = config.vocab * config.hidden // 8
        self.end = self.codebook = self.rotary + layout.positions * config.head_dim // 2
        if depth is not None:
            self.modes |= MODEL_DEPTH
            self.depth_positions = self.codebook + depth.books * layout.codes * depth.code_dim // 8
            self.end = self.depth_positions + depth.codes_per_position * depth.hidden // 4
        self.nodes = [self._node(opcode, layer) for opcode, layer in node_sequence(config.layers, depth)]

    @property
    def headers(self) -> int:
        """Descriptors in front of those of the nodes."""
        return 1 if self.depth is None else 2

    @property
    def program_bytes(self) -> int:
        return 4 * WORDS * (self.headers + len(self.nodes))

    @property
    def bytes(self) -> int:
        """Of program and weights."""
        return BEAT_BYTES * self.end + self.program_bytes

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
        headers = [header] if self.depth is None else [header, self._depth_header(self.depth)]
        return np.stack([*headers, *(NODE.pack(**node) for node in self.nodes)])

    def _depth_header(self, depth: DepthConfig) -> np.ndarray:
        return DEPTH.pack(
            opcode=Opcode.DEPTH_HEADER,
            layers=depth.layers,
            hidden=depth.hidden,
            heads=depth.heads,
            head_dim=depth.head_dim,
            mlp=depth.mlp,
            codes_per_position=depth.codes_per_position,
            code_dim=depth.code_dim,
            books=depth.books,
            projector=depth.projector_layers,
            codebook=self.codebook,
            positions=self.depth_positions,
        )

    def linear(self, opcode: Opcode, layer: int = 0) -> LinearPlan:
        """Shape of the linear layer behind an opcode."""
        if opcode in DEPTH_FIELDS:
            return self._deep_linear(opcode, layer)
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

    def _deep_linear(self, opcode: Opcode, layer: int) -> LinearPlan:
        depth, hidden = self.depth, self.config.hidden
        inputs, outputs = {
            Opcode.PROJECT: (hidden if layer else depth.code_dim, hidden),
            Opcode.DEPTH_HIDDEN: (hidden, depth.hidden),
            Opcode.DEPTH_CODES: (depth.code_dim, depth.hidden),
            Opcode.DEPTH_QKV: (depth.hidden, 3 * depth.hidden),
            Opcode.DEPTH_OUTPUT: (depth.hidden, depth.hidden),
            Opcode.DEPTH_FC1: (depth.hidden, depth.mlp),
            Opcode.DEPTH_FC2: (depth.mlp, depth.hidden),
            Opcode.DEPTH_LOGITS: (depth.hidden, self.layout.codes),
        }[opcode]
        return LinearPlan(inputs, outputs, self.int4[DEPTH_FIELDS[opcode].format(layer)], bias=True)

    def _node(self, opcode: Opcode, layer: int) -> dict[str, float]:
        config = self.config
        node = {"opcode": opcode, "flags": 0, "layer": layer, "inputs": 0, "outputs": 0, "beats": 0, "eps": 0.0}
        if opcode in LINEAR_FIELDS or opcode in DEPTH_FIELDS:
            plan = self.linear(opcode, layer)
            node |= {"inputs": plan.inputs, "outputs": plan.outputs, "beats": plan.port_beats}
            node["flags"] = (NODE_INT4 if plan.int4 else 0) | (NODE_BIAS if plan.bias else 0)
        elif opcode in (Opcode.NORM_ATTENTION, Opcode.NORM_MLP, Opcode.NORM_FINAL):
            node |= {"beats": _word_beats(config.hidden), "eps": config.norm_eps}
        elif opcode == Opcode.HEADS:
            node["beats"] = _word_beats(3 * (config.heads + config.kv_heads))
        elif opcode in (Opcode.DEPTH_NORM_ATTENTION, Opcode.DEPTH_NORM_MLP, Opcode.DEPTH_NORM):
            node |= {"beats": 2 * _word_beats(self.depth.hidden), "eps": self.depth.norm_eps}
        elif opcode == Opcode.DEPTH_HEADS:
            node["beats"] = _word_beats(5 * self.depth.heads)
        node["address"] = self.end
        self.end += PORTS * node["beats"]
        return node


def int4_linears(bits: int, depth: DepthConfig | None = None) -> dict[str, bool]:
    """Of weights of ``bits``: whether a linear layer has 4-bit ones, by its name. The head, and what leads into a depth
    transformer and out of it, have 8 always."""
    found = dict.fromkeys(("qkv", "output", "gate_up", "down"), bits == 4) | {"head": False}
    if depth is not None:
        for opcode, name in DEPTH_FIELDS.items():
            of_block = opcode in DEPTH_LAYER
            count = depth.layers if of_block else depth.projector_layers if opcode == Opcode.PROJECT else 1
            found |= {name.format(index): of_block and bits == 4 for index in range(count)}
    return found


def _word_beats(words: int) -> int:
    """Beats a port reads of 32-bit words dealt to the ports."""
    return -(-words // (4 * PORTS))
