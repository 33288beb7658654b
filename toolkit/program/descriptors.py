"""The program: one descriptor of 64 bytes a node, behind one that describes the model.

A step runs the descriptors in order. The order is fixed, which is what lets the engine check a program before it
touches memory: EMBED, then for each layer the eight of ``LAYER``, then the three of ``ENDING``.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum

from .words import Record, Word

__all__ = [
    "ENDING",
    "FORMAT_VERSION",
    "LAYER",
    "MODEL",
    "NODE",
    "NODE_BIAS",
    "NODE_INT4",
    "PRE_ROPE",
    "TAS_HEADS_CODES",
    "WORDS",
    "Opcode",
    "node_sequence",
]

FORMAT_VERSION = 2  # since 2 a step reads the token of its record, or its own last code
WORDS = 16  # 64 bytes
NODE_INT4 = 1  # flag: 4-bit weights with group multipliers
NODE_BIAS = 2  # flag: biases behind the scales of each tile


class Opcode(IntEnum):
    """What a node does; ``export.overlay.compile.NODES_OF`` names the functions of the graph it stands for."""

    MODEL_HEADER = 1
    EMBED = 2
    NORM_ATTENTION = 3
    LINEAR_QKV = 4
    HEADS = 5
    ATTENTION = 6
    LINEAR_OUTPUT = 7
    NORM_MLP = 8
    LINEAR_GATE_UP = 9
    LINEAR_DOWN = 10
    NORM_FINAL = 11
    LINEAR_LOGITS = 12
    SAMPLE = 13


LAYER = (
    Opcode.NORM_ATTENTION,
    Opcode.LINEAR_QKV,
    Opcode.HEADS,
    Opcode.ATTENTION,
    Opcode.LINEAR_OUTPUT,
    Opcode.NORM_MLP,
    Opcode.LINEAR_GATE_UP,
    Opcode.LINEAR_DOWN,
)
ENDING = (Opcode.NORM_FINAL, Opcode.LINEAR_LOGITS, Opcode.SAMPLE)


def node_sequence(layers: int) -> Iterator[tuple[Opcode, int]]:
    """Opcodes of a step in order, with the layer each belongs to."""
    yield Opcode.EMBED, 0
    for layer in range(layers):
        yield from ((opcode, layer) for opcode in LAYER)
    yield from ((opcode, 0) for opcode in ENDING)


MODEL = Record(
    "Model",
    "Shape of the model and of its video; the first descriptor.",
    (
        Word("opcode", "MODEL_HEADER; bit 16: the score takes the query before rotation; bits 17, 18: TAS_HEADS_CODES"),
        Word("build_id", "of the engine the program was made for"),
        Word("layers", "decoder layers"),
        Word("hidden", "width of the residual stream"),
        Word("heads", "query heads"),
        Word("kv_heads", "key/value heads"),
        Word("head_dim", "values of a head"),
        Word("mlp", "inputs of the down projection"),
        Word("codes", "outputs of the head"),
        Word("code_offset", "vocabulary entry of code 0"),
        Word("vocab", "rows of the embedding"),
        Word("prompt_length", "positions before the first frame"),
        Word("places", "positions of a frame"),
        Word("positions", "rows of the rotary tables: the longest clip"),
        Word("embedding", "beat address of the embedding, binary16 rows"),
        Word("rotary", "beat address of the rotary tables: cosines, then signed sines of a position, binary32"),
    ),
    WORDS,
)
PRE_ROPE = 1 << 16
TAS_HEADS_CODES = {"mean": 0, "max": 1 << 17, "min": 1 << 18}
"""Bits of the model header's opcode that say what the score makes of the heads."""

NODE = Record(
    "Node",
    "One node of the step.",
    (
        Word("opcode", "what to do"),
        Word("flags", "NODE_INT4, NODE_BIAS"),
        Word("layer", "decoder layer; 0 outside of them"),
        Word("inputs", "values a linear layer reads of a row"),
        Word("outputs", "values it makes of them"),
        Word("address", "beat address of the node's weights; port p reads `beats` from address + p * beats"),
        Word("beats", "beats each weight port reads"),
        Word("eps", "of a norm", "f32"),
    ),
    WORDS,
)
