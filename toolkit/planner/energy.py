"""Energy of a step by a model with documented constants (``energy.toml``). Estimated; nothing was measured."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ...boards import Board
from ...boards.load import tomllib
from ..program.memory import BEAT_BYTES, PORTS
from .step import StepCounts, whole

__all__ = ["Energy", "Power", "energy_of_step", "power"]

FILE = Path(__file__).with_name("energy.toml")


@dataclass(frozen=True)
class Power:
    """Watts of the chip with its memory controller, and of the memory devices."""

    chip: float
    memory: float

    @property
    def total(self) -> float:
        return self.chip + self.memory


@dataclass(frozen=True)
class Energy:
    """Joules of a step, and the watts meanwhile."""

    joules: float
    power: Power


def power(board: Board, lut: float, clock_mhz: float, group_use: float, bytes_per_second: float) -> Power:
    """``lut``: of the engine; ``group_use``: share of their clocks the groups work, 0..1."""
    constants = _constants()
    idle = constants["groups"]["share_when_idle"]
    fabric = constants["fabric"]["microwatts_per_lut_mhz"] * 1e-6 * lut * clock_mhz * (idle + (1 - idle) * group_use)
    kind = "hbm2" if board.ddr.type.startswith("HBM") else "ddr4"
    memory = constants["memory"][f"{kind}_picojoules_per_bit"] * 1e-12 * 8 * bytes_per_second
    return Power(constants["base"]["watts"] + fabric, memory)


def energy_of_step(step: StepCounts, board: Board, lut: float, groups: int, clock_mhz: float) -> Energy:
    """``groups``: of each port's column."""
    sums = whole(step)
    seconds = sums.cycles / clock_mhz / 1e6
    watts = power(board, lut, clock_mhz, sums.busy / (sums.cycles * PORTS * groups), BEAT_BYTES * sums.beats / seconds)
    return Energy(watts.total * seconds, watts)


@cache
def _constants() -> dict[str, dict[str, float]]:
    return tomllib.loads(FILE.read_text("utf-8"))
