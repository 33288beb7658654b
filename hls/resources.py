"""What an engine takes of a device, unit by unit. Everything is an estimate: Vitis has synthesized nothing.

DSP48E2, block RAMs and UltraRAMs follow from the loops and arrays (``units``, ``memories``) and are as good as the
assumption that the tool maps them so; LUTs are +-30 %. Flip-flops, two a LUT (UG574), are not estimated.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from ..boards.model import Board
from ..toolkit.errors import FitError
from ..toolkit.program.engine import EngineConfig
from .memories import Storage
from .units import Unit, units

__all__ = [
    "RESOURCES",
    "USABLE",
    "KernelEstimate",
    "aligned",
    "budget",
    "check_fits",
    "estimate",
    "estimate_on",
    "exceeded",
    "is_within",
    "largest_groups",
    "placement",
    "table",
    "total",
]

LABELS = {"dsp": "DSP", "bram36": "BRAM36", "uram": "URAM", "lut": "LUT"}
RESOURCES = tuple(LABELS)

USABLE = {"dsp": 0.8, "bram36": 0.9, "uram": 0.9, "lut": 0.85}
"""Fraction of a device that an engine may take. UG1393, timing closure considerations, calls timing harder above 70 %
of the LUTs and 80 % of DSPs, block RAMs and UltraRAMs; published decode engines on the K26 take 84 % of its LUTs at
250 MHz (arXiv 2510.15926) and 92 % (arXiv 2504.16266), 86 % of its block RAMs and 97 % of its UltraRAMs. Whether an
engine of this size closes timing at its clock is not known."""

MAX_GROUPS = 32


@dataclass(frozen=True)
class KernelEstimate:
    """One unit: DSP48E2, block RAMs of 36 Kb (in halves), UltraRAMs, LUTs."""

    name: str
    dsp: int
    bram36: float
    uram: int
    lut: int


def estimate(
    config: EngineConfig, *, ultraram: bool = True, bound: Mapping[str, str] = MappingProxyType({})
) -> list[KernelEstimate]:
    """Every unit's share; ``ultraram``: whether the device has UltraRAM for the large memories.

    ``bound``: kind of memory by the variable that is bound to it, as ``placement`` finds it.
    """
    return [_estimate(unit, ultraram, bound) for unit in units(config)]


def estimate_on(config: EngineConfig, board: Board) -> list[KernelEstimate]:
    """Every unit's share on a board, its arrays bound so that they fit if they can."""
    return estimate(config, ultraram=board.resources.uram > 0, bound=placement(config, board))


def placement(config: EngineConfig, board: Board) -> dict[str, str]:
    """Arrays to bind to another kind of memory, by variable, where the block RAMs would exceed the board's budget.

    The array that frees most block RAMs for the least share of what is left of UltraRAMs or LUTs goes first. Empty
    where nothing has to move, or where moving does not help.
    """
    usable = budget(board)
    movable = [memory for unit in units(config) for memory in unit.memories if memory.variable]
    bound: dict[str, str] = {}
    while (used := total(estimate(config, ultraram=board.resources.uram > 0, bound=bound))).bram36 > usable.bram36:
        moves = []
        for memory in movable:
            freed = memory.storage(board.resources.uram > 0, bound.get(memory.variable, "")).bram36
            for kind, name in (("uram", "uram"), ("lutram", "lut")):
                left = getattr(usable, name) - getattr(used, name)
                needed = getattr(memory.storage(True, kind), name)
                if freed and needed <= left:
                    moves.append((needed / left / freed, memory.variable, kind))
        if not moves:
            return {}
        _, variable, kind = min(moves)
        bound[variable] = kind
    return bound


def total(kernels: list[KernelEstimate]) -> KernelEstimate:
    sums = {name: sum(getattr(kernel, name) for kernel in kernels) for name in RESOURCES}
    return KernelEstimate("total", **sums)


def budget(board: Board) -> KernelEstimate:
    """What an engine may take of the board's device."""
    usable = {name: math.floor(getattr(board.resources, name) * USABLE[name]) for name in RESOURCES}
    return KernelEstimate("budget", **usable)


def is_within(config: EngineConfig, board: Board) -> bool:
    """Whether the estimate is within the budget."""
    return not exceeded(config, board)


def check_fits(config: EngineConfig, board: Board) -> None:
    """FitError with the table, and the number of groups that would fit, if the estimate exceeds the budget."""
    over = exceeded(config, board)
    if not over:
        return
    groups = largest_groups(config, board)
    if groups:
        fix = f"Set groups to {groups}, the most that fit."
    else:
        fix = "No number of groups fits: reduce rows, vector and the max_ dimensions."
    used, usable = total(estimate_on(config, board)), budget(board)
    found = ", ".join(f"{LABELS[name]} {_number(getattr(used, name))}" for name in over)
    expected = ", ".join(f"{LABELS[name]} {_number(getattr(usable, name))}" for name in over)
    subject, lines = f"engine {config.name} on {board.name}", "\n".join(aligned(table(config, board)))
    raise FitError(subject, f"an estimate of {found}", f"at most {expected}", fix, lines)


def largest_groups(config: EngineConfig, board: Board) -> int:
    """The largest number of groups that fits, everything else as it is; 0 if none does."""
    for groups in range(MAX_GROUPS, 0, -1):
        if not exceeded(config.model_copy(update={"groups": groups}), board):
            return groups
    return 0


def table(config: EngineConfig, board: Board) -> list[tuple[str, ...]]:
    """Rows of text: a heading, the units, their sum, the budget, the device. Estimates."""
    kernels = estimate_on(config, board)
    device = KernelEstimate("device", *(getattr(board.resources, name) for name in RESOURCES))
    rows = [*kernels, total(kernels), budget(board), device]
    body = [(row.name, *(_number(getattr(row, name)) for name in RESOURCES)) for row in rows]
    return [("estimate", *(LABELS[name] for name in RESOURCES)), *body]


def aligned(rows: list[tuple[str, ...]]) -> list[str]:
    """Rows as lines: the first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        numbers = (cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))
        lines.append("  ".join([row[0].ljust(widths[0]), *numbers]))
    return lines


def _estimate(unit: Unit, ultraram: bool, bound: Mapping[str, str]) -> KernelEstimate:
    kinds = [(memory, bound.get(memory.variable, "") if memory.variable else "") for memory in unit.memories]
    stored = sum((memory.storage(ultraram, kind) for memory, kind in kinds), Storage())
    return KernelEstimate(unit.name, unit.dsp, stored.bram36, stored.uram, math.ceil(unit.lut + stored.lut))


def exceeded(config: EngineConfig, board: Board) -> list[str]:
    """The resources of which the estimate is beyond the budget."""
    used, usable = total(estimate_on(config, board)), budget(board)
    return [name for name in RESOURCES if getattr(used, name) > getattr(usable, name)]


def _number(value: float) -> str:
    return f"{value:g}" if value < 1e6 else f"{value:.0f}"
