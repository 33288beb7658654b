"""Weights in the order the read ports stream them.

A linear layer is cut into tiles of 32 outputs, 8 for each port. A port's stream of a tile: two beats of scales, two of
biases if the layer has any, then for each chunk of inputs one beat an output, and for 4-bit weights a beat of
multipliers in front of every second chunk.
"""

from __future__ import annotations

import numpy as np

from ...toolkit.errors import UsageError
from ...toolkit.numerics.attention import AttentionScales
from ...toolkit.numerics.weights import DepthBlockWeights, LayerWeights, LinearWeights
from ...toolkit.program.memory import BEAT_BYTES, PORTS

__all__ = ["LinearPlan", "pack_linear", "pack_words"]

PAIRS = 4  # pairs of outputs of a port in a full tile
TILE = PORTS * 2 * PAIRS
SCALE_BEATS = 2
GROUP = 32  # inputs of a 4-bit weight beat, and the smallest group that has one multiplier


class LinearPlan:
    """Beats and tiles of one linear layer of ``inputs`` x ``outputs``; the same formulas as ``LinearShape`` on chip."""

    def __init__(self, inputs: int, outputs: int, int4: bool, bias: bool = False) -> None:
        self.inputs, self.outputs, self.int4, self.bias = inputs, outputs, int4, bias
        self.chunk_inputs = 2 * BEAT_BYTES if int4 else BEAT_BYTES
        self.chunks = -(-inputs // self.chunk_inputs)
        self.tiles = -(-outputs // TILE)

    def pairs(self, tile: int) -> int:
        return min(PAIRS, -(-(self.outputs - tile * TILE) // (2 * PORTS)))

    @property
    def head_beats(self) -> int:
        """Of scales and biases, in front of a tile's weights."""
        return SCALE_BEATS * (2 if self.bias else 1)

    def tile_beats(self, pairs: int) -> int:
        return self.head_beats + (-(-self.chunks // 2) if self.int4 else 0) + self.chunks * 2 * pairs

    @property
    def port_beats(self) -> int:
        return (self.tiles - 1) * self.tile_beats(PAIRS) + self.tile_beats(self.pairs(self.tiles - 1))


def pack_linear(linear: LinearWeights) -> np.ndarray:
    """(ports, beats, 16) uint8. Outputs beyond the layer's and inputs beyond its are zero weights.

    UsageError for a group size that is not a multiple of 32.
    """
    inputs, outputs = linear.values.shape
    plan = LinearPlan(inputs, outputs, linear.bit_width == 4, linear.bias is not None)
    multiplier = None
    if plan.int4:
        if linear.group_size % GROUP:
            raise UsageError(
                "the overlay", f"groups of {linear.group_size}", f"a multiple of {GROUP}", "Export with another recipe."
            )
        multiplier = np.repeat(linear.multiplier, linear.group_size // GROUP, axis=0)
    tiles = [_pack_tile(linear, multiplier, plan, tile) for tile in range(plan.tiles)]
    return np.concatenate(tiles, axis=1)


def _pack_tile(linear: LinearWeights, multiplier: np.ndarray | None, plan: LinearPlan, tile: int) -> np.ndarray:
    """(ports, beats, 16) uint8 of one tile."""
    port_outputs = 2 * plan.pairs(tile)
    first, count = tile * TILE, PORTS * port_outputs
    columns = slice(first, min(first + count, plan.outputs))
    values = np.zeros((plan.chunks * plan.chunk_inputs, count), np.int8)
    values[: plan.inputs, : columns.stop - first] = linear.values[:, columns]
    by_port = values.reshape(plan.chunks, plan.chunk_inputs, PORTS, port_outputs).transpose(2, 0, 3, 1)

    words = [linear.scale] if linear.bias is None else [linear.scale, linear.bias]
    head = np.concatenate([_tile_words(each[columns], port_outputs) for each in words], axis=1)
    if multiplier is None:
        body = by_port.reshape(PORTS, -1, BEAT_BYTES).view(np.uint8)
        return np.concatenate([head, body], axis=1)

    nibbles = by_port.view(np.uint8) & 15
    beats = (nibbles[..., 0::2] | (nibbles[..., 1::2] << 4)).astype(np.uint8)  # (ports, chunks, outputs, 16)
    pairs_of_chunks = -(-plan.chunks // 2)
    factors = np.zeros((2 * pairs_of_chunks, count), np.uint8)
    factors[: plan.chunks, : columns.stop - first] = multiplier[:, columns]
    lanes = np.zeros((PORTS, pairs_of_chunks, 2, 2 * PAIRS), np.uint8)
    lanes[..., :port_outputs] = factors.reshape(pairs_of_chunks, 2, PORTS, port_outputs).transpose(2, 0, 1, 3)
    factor_beats = lanes.reshape(PORTS, pairs_of_chunks, BEAT_BYTES)
    body = []
    for pair in range(pairs_of_chunks):
        body += [factor_beats[:, pair, None], beats[:, 2 * pair : 2 * pair + 2].reshape(PORTS, -1, BEAT_BYTES)]
    return np.concatenate([head, *body], axis=1)


def _tile_words(values: np.ndarray, port_outputs: int) -> np.ndarray:
    """Up to 32 float32 of a tile's outputs -> (ports, 2, 16) uint8, zeros for outputs that do not exist."""
    padded = np.zeros(PORTS * port_outputs, np.float32)
    padded[: values.size] = values
    words = np.zeros((PORTS, 2 * PAIRS), np.float32)
    words[:, :port_outputs] = padded.reshape(PORTS, port_outputs)
    return words.view(np.uint8).reshape(PORTS, SCALE_BEATS, BEAT_BYTES)


def pack_words(words: np.ndarray) -> np.ndarray:
    """(n,) 32-bit words -> (ports, beats, 16) uint8, dealt to the ports beat by beat, zeros at the end."""
    per_row = PORTS * BEAT_BYTES // 4
    padded = np.zeros(-(-words.size // per_row) * per_row, np.uint32)
    padded[: words.size] = words.view(np.uint32)
    return padded.reshape(-1, PORTS, BEAT_BYTES // 4).transpose(1, 0, 2).copy().view(np.uint8)


def interleave_gate_up(linear: LinearWeights) -> LinearWeights:
    """Columns as gate 0, up 0, gate 1, up 1, ...: the two products of a group that SwiGLU needs together."""
    order = np.arange(linear.scale.size).reshape(2, -1).T.reshape(-1)
    multiplier = None if linear.multiplier is None else np.ascontiguousarray(linear.multiplier[:, order])
    bias = None if linear.bias is None else linear.bias[order]
    return LinearWeights(np.ascontiguousarray(linear.values[:, order]), linear.scale[order], multiplier, bias)


def head_words(layer: LayerWeights, exponent: np.ndarray) -> np.ndarray:
    """Scales of q, k, v; exponents; scales of v; multipliers of the score: as 32-bit words."""
    floats = np.concatenate([layer.q_scale, layer.k_scale, layer.v_scale, exponent.reshape(-1), layer.v_scale])
    return np.concatenate(
        [floats.astype(np.float32).view(np.uint32), layer.tas_multiplier.astype(np.int32).view(np.uint32)]
    )


def deep_head_words(block: DepthBlockWeights, head_dim: int) -> np.ndarray:
    """The same of a depth transformer's layer, which has no score."""
    exponent = AttentionScales.of(block.q_scale, block.k_scale, block.v_scale, head_dim).exponent
    parts = (block.q_scale, block.k_scale, block.v_scale, exponent.reshape(-1), block.v_scale)
    return np.concatenate(parts).astype(np.float32).view(np.uint32)
