"""Energy of a step, beside a calculation by hand with the constants of ``energy.toml``."""

from __future__ import annotations

import pytest

from fastcar.boards import load_board
from fastcar.hls.counting import OperationCounts
from fastcar.toolkit.planner.energy import energy_of_step


@pytest.mark.parametrize(("board", "memory_watts"), [("kv260", 2.56), ("u280", 0.4992)])
def test_a_step_by_hand(board: str, memory_watts: float) -> None:
    """Half a second at 300 MHz, 8 GB moved, two groups in each of four columns at work half of the time."""
    clocks = 150e6
    halves = OperationCounts(cycles=clocks / 2, read_beats=0.2e9, cache_beats=0.05e9, busy=clocks / 2 * 4 * 2 / 2)
    found = energy_of_step({"MLP": halves, "attention": halves}, load_board(board), 50_000, 2, 300)
    chip = 2.3 + 0.18e-6 * 50_000 * 300 * (0.5 + 0.5 * 0.5)
    assert found.power.chip == pytest.approx(chip)
    assert found.power.memory == pytest.approx(memory_watts), "16 GB/s at 20 pJ a bit, HBM2 3.9"
    assert found.joules == pytest.approx((chip + memory_watts) / 2)
