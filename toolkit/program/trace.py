"""What the nodes of a traced step leave behind: names, shapes and places; ``hls/include/fastcar/layout.h`` has the
same sizes on chip.

The engine writes them operation by operation and row by row, each row in whole beats of 16 bytes. Scores, decisions,
logits and codes are in the record of every step, and complete the trace.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..config import BackboneConfig, DepthConfig
from .descriptors import DEPTH_INPUTS, Opcode, node_sequence

__all__ = ["KINDS", "TraceEntry", "TraceLayout", "code_of", "kind_of", "layer_of"]

FLOATS, HEADS, OPERAND = "floats", "heads", "operand"
PER_BEAT = {FLOATS: 4, HEADS: 16, OPERAND: 16}

KINDS = {
    Opcode.EMBED: FLOATS,  # the residual stream
    Opcode.NORM_ATTENTION: OPERAND,
    Opcode.LINEAR_QKV: FLOATS,
    Opcode.HEADS: HEADS,  # q, k, v as the caches hold them
    Opcode.ATTENTION: OPERAND,
    Opcode.LINEAR_OUTPUT: FLOATS,  # added to the residual stream
    Opcode.NORM_MLP: OPERAND,
    Opcode.LINEAR_GATE_UP: OPERAND,
    Opcode.LINEAR_DOWN: FLOATS,  # the residual stream, with what the rows computed or replayed
    Opcode.NORM_FINAL: OPERAND,
    Opcode.LINEAR_LOGITS: FLOATS,  # before guidance
    Opcode.PROJECT: FLOATS,  # the last layer's: the residual stream
    Opcode.DEPTH_HIDDEN: FLOATS,  # the residual stream of the depth transformer
    Opcode.DEPTH_CODES: FLOATS,
    Opcode.DEPTH_NORM_ATTENTION: OPERAND,
    Opcode.DEPTH_QKV: FLOATS,
    Opcode.DEPTH_HEADS: HEADS,
    Opcode.DEPTH_ATTENTION: OPERAND,
    Opcode.DEPTH_OUTPUT: FLOATS,
    Opcode.DEPTH_NORM_MLP: OPERAND,
    Opcode.DEPTH_FC1: OPERAND,
    Opcode.DEPTH_FC2: FLOATS,
    Opcode.DEPTH_NORM: OPERAND,
    Opcode.DEPTH_LOGITS: FLOATS,
}
"""Of an operation: float32 values, int8 heads, or int8 values and behind them a beat with their float32 scale."""

NAMES = {
    Opcode.EMBED: "embedding",
    Opcode.NORM_ATTENTION: "RMSNorm",
    Opcode.LINEAR_QKV: "qkv",
    Opcode.HEADS: "RotaryEmbedding",
    Opcode.ATTENTION: "Attention",  # quantized
    Opcode.LINEAR_OUTPUT: "output",
    Opcode.NORM_MLP: "ReplayMLP.norm",
    Opcode.LINEAR_GATE_UP: "ReplayMLP.hidden",
    Opcode.LINEAR_DOWN: "ReplayMLP",
    Opcode.NORM_FINAL: "final.RMSNorm",
    Opcode.LINEAR_LOGITS: "head",
    Opcode.PROJECT: "embedding",
    Opcode.DEPTH_HIDDEN: "embedding",
    Opcode.DEPTH_CODES: "embedding",
    Opcode.DEPTH_NORM_ATTENTION: "LayerNorm.attention",
    Opcode.DEPTH_QKV: "qkv",
    Opcode.DEPTH_HEADS: "heads",
    Opcode.DEPTH_ATTENTION: "Attention",
    Opcode.DEPTH_OUTPUT: "output",
    Opcode.DEPTH_NORM_MLP: "LayerNorm.mlp",
    Opcode.DEPTH_FC1: "GELU",
    Opcode.DEPTH_FC2: "fc2",
    Opcode.DEPTH_NORM: "LayerNorm",
    Opcode.DEPTH_LOGITS: "classifier",
}
"""The graph's names, inside of a layer behind ``layers.L.``; ReplayMLP hides two steps of the engine. Those of the
depth transformer's residual code i behind ``depth.i.``, inside of a layer behind ``depth.i.blocks.L.``."""

OUTSIDE = (Opcode.EMBED, Opcode.PROJECT, Opcode.NORM_FINAL, Opcode.LINEAR_LOGITS)  # of the layers
OUTSIDE_DEPTH = (*DEPTH_INPUTS, Opcode.DEPTH_NORM, Opcode.DEPTH_LOGITS)
COMPUTED = (Opcode.NORM_MLP, Opcode.LINEAR_GATE_UP)  # without meaning for a row that replays
Arrays = dict[str, np.ndarray]
Shape = tuple[tuple[int, ...], np.dtype]


@dataclass(frozen=True)
class TraceEntry:
    """``values`` of each row, in ``row_beats`` beats, from beat ``first`` of the trace."""

    opcode: Opcode
    layer: int
    name: str
    values: int
    first: int

    @property
    def kind(self) -> str:
        return KINDS[self.opcode]

    @property
    def row_beats(self) -> int:
        return -(-self.values // PER_BEAT[self.kind]) + (self.kind == OPERAND)


class TraceLayout:
    """Of a step of ``rows`` rows of a model with ``codes`` outputs, ``clips`` of them sampled."""

    def __init__(
        self, config: BackboneConfig, codes: int, rows: int, clips: int, depth: DepthConfig | None = None
    ) -> None:
        self.config, self.codes, self.rows, self.clips, self.depth = config, codes, rows, clips, depth
        self.entries: list[TraceEntry] = []
        self.beats = 0
        nodes = list(node_sequence(config.layers, depth))
        first = next((i for i, (opcode, _) in enumerate(nodes) if opcode in DEPTH_INPUTS), len(nodes))
        self._add(nodes[:first])
        for index in range(0 if depth is None else depth.codes_per_position):
            unused = DEPTH_INPUTS[index == 0]
            self._add([node for node in nodes[first:] if node[0] != unused], f"depth.{index}.")

    def _add(self, nodes: list[tuple[Opcode, int]], prefix: str = "") -> None:
        for opcode, layer in nodes:
            if opcode in KINDS and not self._passed_on(opcode, layer):
                outside = opcode in OUTSIDE or opcode in OUTSIDE_DEPTH
                inside = "" if outside else f"blocks.{layer}." if prefix else f"layers.{layer}."
                entry = TraceEntry(opcode, layer, f"{prefix}{inside}{NAMES[opcode]}", self._values(opcode), self.beats)
                self.entries.append(entry)
                self.beats += self.rows * entry.row_beats

    def _passed_on(self, opcode: Opcode, layer: int) -> bool:
        """Whether the residual stream is not complete yet: a projector, where there is one, ends it."""
        if self.depth is None:
            return False
        return opcode == Opcode.EMBED or (opcode == Opcode.PROJECT and layer < self.depth.projector_layers - 1)

    @property
    def arrays(self) -> dict[str, Shape]:
        """Shape and type by name, in the order in which a step computes them."""
        rows = self.rows
        shapes: dict[str, Shape] = {}
        for entry in self.entries:
            if entry.kind == FLOATS:
                shapes[entry.name] = (rows, entry.values), np.dtype(np.float32)
            elif entry.kind == OPERAND:
                shapes[f"{entry.name}.values"] = (rows, entry.values), np.dtype(np.int8)
                shapes[f"{entry.name}.scale"] = (rows, 1), np.dtype(np.float32)
            else:
                own = self._owner(entry.opcode)
                for part, heads in zip("qkv", (own.heads, own.kv_heads, own.kv_heads), strict=True):
                    shapes[f"{entry.name}.{part}"] = (rows, heads, own.head_dim), np.dtype(np.int8)
                if entry.opcode == Opcode.HEADS:
                    shapes[f"layers.{entry.layer}.TemporalAttentionScore"] = (rows,), np.dtype(np.int64)
                    shapes[f"layers.{entry.layer}.ReplayDecision"] = (rows,), np.dtype(np.bool_)
            if entry.opcode in (Opcode.LINEAR_LOGITS, Opcode.DEPTH_LOGITS):
                prefix = entry.name.removesuffix(NAMES[entry.opcode])
                shapes[f"{prefix}logits"] = (self.clips, self.codes), np.dtype(np.float32)
                shapes[f"{prefix}sample"] = (self.clips,), np.dtype(np.int64)
        return shapes

    def read(self, memory: np.ndarray, scores: np.ndarray, replay: np.ndarray) -> Arrays:
        """Copies of everything but logits and codes, out of the trace ``memory`` (beats, 16) uint8 and the step's
        ``scores`` and ``replay`` (layers, rows).

        What the MLP of a row did not compute, as the row replays, is zero.
        """
        found: Arrays = {}
        for entry in self.entries:
            beats = memory[entry.first : entry.first + self.rows * entry.row_beats].reshape(self.rows, -1)
            if entry.kind == FLOATS:
                found[entry.name] = beats.view(np.float32)[:, : entry.values].copy()
                continue
            values = beats.view(np.int8)[:, : entry.values].copy()
            if entry.kind == OPERAND:
                scale = beats[:, -16:-12].copy().view(np.float32)
                if entry.opcode in COMPUTED:
                    values[replay[entry.layer]] = 0
                    scale[replay[entry.layer]] = 0
                found |= {f"{entry.name}.values": values, f"{entry.name}.scale": scale}
                continue
            own = self._owner(entry.opcode)
            heads = values.reshape(self.rows, -1, own.head_dim)
            parts = np.split(heads, [own.heads, own.heads + own.kv_heads], axis=1)
            found |= {f"{entry.name}.{part}": array for part, array in zip("qkv", parts, strict=True)}
            if entry.opcode == Opcode.DEPTH_HEADS:
                continue
            found[f"layers.{entry.layer}.TemporalAttentionScore"] = scores[entry.layer].copy()
            found[f"layers.{entry.layer}.ReplayDecision"] = replay[entry.layer].copy()
        return found

    def chosen(self, logits: np.ndarray, codes: np.ndarray) -> Arrays:
        """Copies of a step's ``logits`` (clips, codes) and ``codes`` (clips,) by name; of a depth transformer's (clips,
        D, codes) and (clips, D) those of each residual code."""
        if self.depth is None:
            return {"logits": logits.copy(), "sample": codes.copy()}
        found: Arrays = {}
        for index in range(self.depth.codes_per_position):
            found |= {f"depth.{index}.logits": logits[:, index].copy(), f"depth.{index}.sample": codes[:, index].copy()}
        return found

    def _owner(self, opcode: Opcode) -> BackboneConfig | DepthConfig:
        """Whose widths and heads hold for an opcode."""
        return self.config if self.depth is None or opcode <= Opcode.PROJECT else self.depth

    def _values(self, opcode: Opcode) -> int:
        config = self._owner(opcode)
        q = config.heads * config.head_dim
        return {
            Opcode.LINEAR_QKV: q + 2 * config.kv_heads * config.head_dim,
            Opcode.HEADS: q + 2 * config.kv_heads * config.head_dim,
            Opcode.ATTENTION: q,
            Opcode.LINEAR_GATE_UP: config.mlp,
            Opcode.LINEAR_LOGITS: self.codes,
            Opcode.DEPTH_QKV: 3 * q,
            Opcode.DEPTH_HEADS: 3 * q,
            Opcode.DEPTH_FC1: config.mlp,
            Opcode.DEPTH_LOGITS: self.codes,
        }.get(opcode, config.hidden)


def layer_of(name: str) -> int | None:
    """Layer of a name of ``TraceLayout.arrays``, of the backbone or of the depth transformer."""
    parts = name.split(".")
    if parts[0] == "layers":
        return int(parts[1])
    return int(parts[3]) if parts[0] == "depth" and parts[2] == "blocks" else None


def code_of(name: str) -> int | None:
    """Residual code that the depth transformer works on at a name of ``TraceLayout.arrays``."""
    parts = name.split(".")
    return int(parts[1]) if parts[0] == "depth" else None


def kind_of(name: str) -> str:
    """The name without layer and code: of all nodes of the kind."""
    layer, code = layer_of(name), code_of(name)
    if code is None:
        return name.removeprefix(f"layers.{layer}.")
    return "depth." + name.removeprefix(f"depth.{code}.").removeprefix(f"blocks.{layer}.")
