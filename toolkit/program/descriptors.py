"""The program: one descriptor of 64 bytes a node, behind one that describes the model.

A step runs the descriptors in order. The order is fixed, which is what lets the engine check a program before it
touches memory: EMBED, then for each layer the eight of ``LAYER``, then the three of ``ENDING``.

A model with a depth transformer has a second header, a PROJECT for each layer of its projector behind EMBED, and
instead of the last two of ``ENDING`` the two of ``DEPTH_INPUTS``, the eight of ``DEPTH_LAYER`` for each of its layers
and the three of ``DEPTH_ENDING``. A step runs these once for each residual code of a position: the same weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum

from ..config import DepthConfig
from .words import Record, Word

__all__ = [
    "DEPTH",
    "DEPTH_ENDING",
    "DEPTH_INPUTS",
    "DEPTH_LAYER",
    "ENDING",
    "FORMAT_VERSION",
    "LAYER",
    "MODEL",
    "MODEL_DEPTH",
    "NODE",
    "NODE_BIAS",
    "NODE_INT4",
    "PRE_ROPE",
    "TAS_HEADS_CODES",
    "WORDS",
    "Opcode",
    "node_sequence",
]

FORMAT_VERSION = 3  # since 3 there are depth transformers, and rows with padding
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
    PROJECT = 14
    DEPTH_HEADER = 15
    DEPTH_HIDDEN = 16
    DEPTH_CODES = 17
    DEPTH_NORM_ATTENTION = 18
    DEPTH_QKV = 19
    DEPTH_HEADS = 20
    DEPTH_ATTENTION = 21
    DEPTH_OUTPUT = 22
    DEPTH_NORM_MLP = 23
    DEPTH_FC1 = 24
    DEPTH_FC2 = 25
    DEPTH_NORM = 26
    DEPTH_LOGITS = 27
    DEPTH_SAMPLE = 28


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


DEPTH_INPUTS = (Opcode.DEPTH_HIDDEN, Opcode.DEPTH_CODES)
"""What the depth transformer reads: the hidden state for a position's first code, the codes before for the others."""

DEPTH_LAYER = (
    Opcode.DEPTH_NORM_ATTENTION,
    Opcode.DEPTH_QKV,
    Opcode.DEPTH_HEADS,
    Opcode.DEPTH_ATTENTION,
    Opcode.DEPTH_OUTPUT,
    Opcode.DEPTH_NORM_MLP,
    Opcode.DEPTH_FC1,
    Opcode.DEPTH_FC2,
)
DEPTH_ENDING = (Opcode.DEPTH_NORM, Opcode.DEPTH_LOGITS, Opcode.DEPTH_SAMPLE)


def node_sequence(layers: int, depth: DepthConfig | None = None) -> Iterator[tuple[Opcode, int]]:
    """Opcodes of the program in order, with the layer each belongs to."""
    yield Opcode.EMBED, 0
    if depth is not None:
        yield from ((Opcode.PROJECT, layer) for layer in range(depth.projector_layers))
    for layer in range(layers):
        yield from ((opcode, layer) for opcode in LAYER)
    if depth is None:
        yield from ((opcode, 0) for opcode in ENDING)
        return
    yield Opcode.NORM_FINAL, 0
    yield from ((opcode, 0) for opcode in DEPTH_INPUTS)
    for layer in range(depth.layers):
        yield from ((opcode, layer) for opcode in DEPTH_LAYER)
    yield from ((opcode, 0) for opcode in DEPTH_ENDING)


MODEL = Record(
    "Model",
    "Shape of the model and of its video; the first descriptor.",
    (
        Word(
            "opcode",
            "MODEL_HEADER; bit 16: the score takes the query before rotation; 17, 18: TAS_HEADS_CODES; 19: MODEL_DEPTH",
        ),
        Word("build_id", "of the engine the program was made for"),
        Word("layers", "decoder layers"),
        Word("hidden", "width of the residual stream"),
        Word("heads", "query heads"),
        Word("kv_heads", "key/value heads"),
        Word("head_dim", "values of a head"),
        Word("mlp", "inputs of the down projection"),
        Word("codes", "outputs of the head, or of the depth transformer"),
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

MODEL_DEPTH = 1 << 19
"""Bit of the model header's opcode: codes are predicted by a depth transformer, whose header comes next."""

DEPTH = Record(
    "Depth",
    "Shape of the depth transformer and where its tables are; the second descriptor of a model that has one.",
    (
        Word("opcode", "DEPTH_HEADER"),
        Word("layers", "its layers"),
        Word("hidden", "width of its residual stream"),
        Word("heads", "query heads, each with a key/value head of its own"),
        Word("head_dim", "values of a head"),
        Word("mlp", "inputs of fc2"),
        Word("codes_per_position", "residual codes of a position"),
        Word("code_dim", "values of a codebook's entry"),
        Word("books", "codebooks: 1, or as many as a position has codes"),
        Word("projector", "linear layers from the sum of a position's codes to the backbone"),
        Word("codebook", "beat address of the codebooks, binary16 rows"),
        Word("positions", "beat address of what is added to its input, a binary32 row for each residual code"),
    ),
    WORDS,
)

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
