"""What an engine takes of a device, unit by unit. Everything is an estimate: Vitis has synthesized nothing.

DSP48E2, block RAMs and UltraRAMs follow from the loops and arrays (``units``, ``memories``) and are as good as the
assumption that the tool maps them so; LUTs are +-30 %. Flip-flops, two a LUT (UG574), are not estimated.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..boards.model import Board
from ..toolkit.errors import UsageError
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
    "largest_groups",
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


def estimate(config: EngineConfig, *, ultraram: bool = True) -> list[KernelEstimate]:
    """Every unit's share; ``ultraram``: whether the device has UltraRAM for the large memories."""
    return [_estimate(unit, ultraram) for unit in units(config)]


def total(kernels: list[KernelEstimate]) -> KernelEstimate:
    sums = {name: sum(getattr(kernel, name) for kernel in kernels) for name in RESOURCES}
    return KernelEstimate("total", **sums)


def budget(board: Board) -> KernelEstimate:
    """What an engine may take of the board's device."""
    usable = {name: math.floor(getattr(board.resources, name) * USABLE[name]) for name in RESOURCES}
    return KernelEstimate("budget", **usable)


def check_fits(config: EngineConfig, board: Board) -> None:
    """UsageError with the table, and the number of groups that would fit, if the estimate exceeds the budget."""
    over = _over(config, board)
    if not over:
        return
    groups = largest_groups(config, board)
    if groups:
        fix = f"Set groups to {groups}, the most that fit."
    else:
        fix = "No number of groups fits: reduce rows, vector and the max_ dimensions."
    used, usable = total(_estimates(config, board)), budget(board)
    found = ", ".join(f"{LABELS[name]} {_number(getattr(used, name))}" for name in over)
    expected = ", ".join(f"{LABELS[name]} {_number(getattr(usable, name))}" for name in over)
    lines = "\n".join(["", *aligned(table(config, board)), fix])
    raise UsageError(f"engine {config.name} on {board.name}", f"an estimate of {found}", f"at most {expected}", lines)


def largest_groups(config: EngineConfig, board: Board) -> int:
    """The largest number of groups that fits, everything else as it is; 0 if none does."""
    for groups in range(MAX_GROUPS, 0, -1):
        if not _over(config.model_copy(update={"groups": groups}), board):
            return groups
    return 0


def table(config: EngineConfig, board: Board) -> list[tuple[str, ...]]:
    """Rows of text: a heading, the units, their sum, the budget, the device. Estimates."""
    kernels = _estimates(config, board)
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


def _estimate(unit: Unit, ultraram: bool) -> KernelEstimate:
    stored = sum((memory.storage(ultraram) for memory in unit.memories), Storage())
    return KernelEstimate(unit.name, unit.dsp, stored.bram36, stored.uram, math.ceil(unit.lut + stored.lut))


def _estimates(config: EngineConfig, board: Board) -> list[KernelEstimate]:
    return estimate(config, ultraram=board.resources.uram > 0)


def _over(config: EngineConfig, board: Board) -> list[str]:
    used, usable = total(_estimates(config, board)), budget(board)
    return [name for name in RESOURCES if getattr(used, name) > getattr(usable, name)]


def _number(value: float) -> str:
    return f"{value:g}" if value < 1e6 else f"{value:.0f}"
