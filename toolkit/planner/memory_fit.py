"""Bytes a clip needs on a board, spelled out, against what the board can give: program, weights, caches, records."""

from __future__ import annotations

from dataclasses import dataclass

from ...boards import Board
from ..board.fit import SYSTEM_BYTES
from ..board.meminfo import LARGEST_BYTES, boot_argument, with_slack
from ..program.memory import BEAT_BYTES, StateLayout
from .passes import BACKBONE, Pass
from .step import Rows

__all__ = ["MemoryNeed", "largest", "memory_need", "memory_step"]

MIB = 1 << 20


@dataclass(frozen=True)
class MemoryNeed:
    """Bytes. ``weights``: by pass; ``caches``: keys and values; ``replayed``: MLP outputs of a frame with their ages;
    ``records``: thresholds, inputs and outputs of a frame's steps, programs."""

    weights: dict[str, int]
    caches: int
    replayed: int
    records: int

    @property
    def total(self) -> int:
        return sum(self.weights.values()) + self.caches + self.replayed + self.records

    def parts(self) -> list[tuple[str, int]]:
        weights = [(f"weights, {name}", size) for name, size in self.weights.items()]
        rest = [("keys and values", self.caches), ("replayed outputs", self.replayed), ("records", self.records)]
        return [*weights, *rest]


def memory_need(passes: tuple[Pass, ...], rows: Rows) -> MemoryNeed:
    """Of a whole clip on one board."""
    weights: dict[str, int] = {}
    caches = replayed = records = 0
    for one in passes:
        weights[one.name] = weights.get(one.name, 0) + one.weight_bytes
        records += one.plan.program().nbytes
        if one.name != BACKBONE and one.steps == 1:
            continue  # a linear layer keeps nothing
        steps = max(one.layout.tokens_per_frame, one.layout.prompt_length) if one.name == BACKBONE else one.steps
        layout = StateLayout.for_clip(
            one.config, one.layout, rows.rows, rows.clips, one.layout.positions, steps, logits=False
        )
        caches += layout.cache_beats * BEAT_BYTES
        if one.name == BACKBONE:
            replayed += layout.replay_beats * BEAT_BYTES
        records += (layout.total_beats - layout.thresholds) * BEAT_BYTES
    return MemoryNeed(weights, caches, replayed, records)


def largest(board: Board) -> tuple[int, str]:
    """The most bytes an overlay can have of the board's memory, and why not more."""
    if board.linux is None and board.device.estimates_only:
        return board.ddr.bytes, f"all {board.ddr.bytes / MIB:,.0f} MiB of its {board.ddr.type}"
    if board.ddr.bytes - SYSTEM_BYTES < LARGEST_BYTES:
        why = f"{board.ddr.bytes / MIB:,.0f} MiB less {SYSTEM_BYTES / MIB:.0f} MiB for Linux"
        return board.ddr.bytes - SYSTEM_BYTES, why
    why = f"about the most contiguous memory that can be reserved, of {board.ddr.bytes / MIB:,.0f} MiB"
    return LARGEST_BYTES, why


def memory_step(need: MemoryNeed, board: Board) -> str | None:
    """What to do so that the board has that much contiguous memory; None if it has by default."""
    if board.linux is None or need.total > largest(board)[0] or with_slack(need.total) <= board.linux.cma_bytes:
        return None
    return f"boot with {boot_argument(need.total)}: {board.linux.cma_bytes / MIB:,.0f} MiB are contiguous by default"
