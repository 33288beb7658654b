"""Bytes a clip needs on a board, spelled out, against what the board can give: program, weights, caches, records."""

from __future__ import annotations

from dataclasses import dataclass

from ...boards import Board
from ...export.overlay.program import ProgramPlan
from ..backends.engine import state_layout
from ..board.fit import SYSTEM_BYTES
from ..board.meminfo import LARGEST_BYTES, boot_argument, with_slack
from ..program.memory import BEAT_BYTES, PORTS
from .step import DEPTH, OPERATION_CLASS, PROJECTIONS, Rows

__all__ = ["MemoryNeed", "largest", "memory_need", "memory_step"]

MIB = 1 << 20
BACKBONE = "backbone"


@dataclass(frozen=True)
class MemoryNeed:
    """Bytes. ``weights``: by part of the model, with its tables; ``caches``: keys and values; ``replayed``: MLP outputs
    of a frame with their ages; ``records``: thresholds, inputs and outputs of a frame's steps, the program."""

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


def memory_need(plan: ProgramPlan, rows: Rows) -> MemoryNeed:
    """Of a whole clip on one board."""
    layout = state_layout(plan.config, plan.layout, rows.rows, rows.clips, plan.layout.positions, depth=plan.depth)
    return MemoryNeed(
        _weights(plan),
        BEAT_BYTES * (layout.cache_beats + layout.depth_beats),
        BEAT_BYTES * layout.replay_beats,
        BEAT_BYTES * (layout.total_beats - layout.thresholds) + plan.program_bytes,
    )


def _weights(plan: ProgramPlan) -> dict[str, int]:
    """Bytes of the backbone, and of what a depth transformer brings, whose codebooks are its own."""
    beats = {BACKBONE: plan.codebook}  # embedding and rotary tables are in front of it
    if plan.depth is not None:
        beats |= {DEPTH: plan.nodes[0]["address"] - plan.codebook, PROJECTIONS: 0}
    for node in plan.nodes:
        kind = OPERATION_CLASS[node["opcode"]]
        beats[kind if kind in beats else BACKBONE] += PORTS * node["beats"]
    return {name: BEAT_BYTES * count for name, count in beats.items()}


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
