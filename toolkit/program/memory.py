"""Where things lie in the state buffer, in beats of 16 bytes; ``hls/include/fastcar/layout.h`` is the same on chip."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..config import BackboneConfig, DepthConfig, FrameLayout
from .trace import TraceLayout

__all__ = ["BEAT_BYTES", "BLOCK_SLOTS", "PORTS", "StateLayout"]

BEAT_BYTES = 16
PORTS = 4
BLOCK_SLOTS = 16  # slots of a cache block
SLOT_QUANTUM = PORTS * BLOCK_SLOTS
DEPTH_SLOTS = SLOT_QUANTUM  # of the depth transformer's caches, which hold the residual codes of one position


def beats(count: int, per_beat: int) -> int:
    return -(-count // per_beat)


@dataclass(frozen=True)
class StateLayout:
    """Caches, replayed outputs, caches of the depth transformer if there is one, then thresholds and paddings, the
    records of up to ``steps`` steps and, if ``traced``, of the nodes of one.

    K and V of a (layer, row, kind, head, port) lie in one run; a run holds the port's blocks of 16 slots in order,
    block b on port b mod 4. A block of K is (slot, head_dim), one of V (head_dim, slot), int8. A replayed output is
    ``hidden`` bfloat16 and one beat whose first word is its age, by (place, layer, row). A row reads D words a step and
    a clip makes as many codes, D those of a position: 1 without a depth transformer.
    """

    config: BackboneConfig
    layout: FrameLayout
    rows: int
    clips: int
    slots: int
    steps: int
    logits: bool
    traced: bool = False
    depth: DepthConfig | None = None

    @classmethod
    def for_clip(
        cls,
        config: BackboneConfig,
        layout: FrameLayout,
        rows: int,
        clips: int,
        limit: int,
        steps: int,
        logits: bool,
        traced: bool = False,
        depth: DepthConfig | None = None,
    ) -> StateLayout:
        """Caches for ``limit`` positions, rounded up to whole blocks on every port."""
        slots = -(-limit // SLOT_QUANTUM) * SLOT_QUANTUM
        return cls(config, layout, rows, clips, slots, steps, logits, traced, depth)

    @property
    def cache_shape(self) -> tuple[int, ...]:
        """(layers, rows, K or V, kv_heads, ports, blocks, bytes of a block)."""
        config = self.config
        blocks = self.slots // SLOT_QUANTUM
        return (config.layers, self.rows, 2, config.kv_heads, PORTS, blocks, config.head_dim * BLOCK_SLOTS)

    @property
    def cache_beats(self) -> int:
        return int(np.prod(self.cache_shape, dtype=np.int64)) // BEAT_BYTES

    @property
    def replay_row_beats(self) -> int:
        return self.config.hidden // 8 + 1

    @property
    def replay_shape(self) -> tuple[int, ...]:
        """(places, layers, rows, bytes)."""
        return (self.layout.tokens_per_frame, self.config.layers, self.rows, self.replay_row_beats * BEAT_BYTES)

    @property
    def replay_beats(self) -> int:
        return int(np.prod(self.replay_shape, dtype=np.int64)) // BEAT_BYTES

    @property
    def depth_beats(self) -> int:
        """Of the depth transformer's caches, laid out as the backbone's."""
        depth = self.depth
        values = 0 if depth is None else depth.layers * self.rows * 2 * depth.hidden * DEPTH_SLOTS
        return values // BEAT_BYTES

    @property
    def codes_per_position(self) -> int:
        return 1 if self.depth is None else self.depth.codes_per_position

    @property
    def thresholds(self) -> int:
        return self.cache_beats + self.replay_beats + self.depth_beats

    @property
    def paddings(self) -> int:
        return self.thresholds + beats(self.config.layers, 2)

    @property
    def input(self) -> int:
        return self.paddings + beats(self.rows, 4)

    @property
    def input_parts(self) -> dict[str, int]:
        """Beats of a step's record of inputs, in order."""
        each = self.codes_per_position
        return {"tokens": beats(self.rows * each, 4), "uniforms": beats(self.clips * each, 4)}

    @property
    def output(self) -> int:
        return self.input + self.steps * sum(self.input_parts.values())

    @property
    def output_parts(self) -> dict[str, int]:
        """Beats of a step's record of outputs, in order."""
        return {
            "codes": beats(self.clips * self.codes_per_position, 4),
            "replay": beats(self.config.layers, 4),
            "scores": beats(self.config.layers * self.rows, 2),
            "logits": self.clips * self.codes_per_position * beats(self.layout.codes, 4) if self.logits else 0,
        }

    @property
    def trace(self) -> int:
        return self.output + self.steps * sum(self.output_parts.values())

    @property
    def trace_layout(self) -> TraceLayout:
        return TraceLayout(self.config, self.layout.codes, self.rows, self.clips, self.depth)

    @property
    def total_beats(self) -> int:
        return self.trace + (self.trace_layout.beats if self.traced else 0)
