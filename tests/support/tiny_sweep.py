"""A sweep small enough for a test, and ways to look at it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastcar.toolkit.bundle.bundle import Bundle
from fastcar.toolkit.evaluation.grid import Grid, baselines
from fastcar.toolkit.evaluation.sweep import Plan, plan_sweep

TIMED = ("seconds", "steps_per_second", "speed_up", "dense_seconds", "processes")


class Here:
    """Executes in this process, and counts."""

    def __init__(self) -> None:
        self.tasks: list[Any] = []

    def __call__(self, perform, tasks, processes, on_done, on_lost) -> None:
        self.tasks += tasks
        for index, task in enumerate(tasks):
            on_done(index, perform(task))


def tiny_plan(bundle: Bundle, out: Path) -> Plan:
    """Three settings, two prompts, two seeds, two frames."""
    settings = Grid(thresholds=(0.5,), baselines=baselines("--baseline", ["random:0.5"])).settings()
    return plan_sweep([bundle], settings, ["braking", "left turn"], 2, out, frames=2)


def same_results(rows: list[dict[str, Any]], others: list[dict[str, Any]]) -> bool:
    """All but the times."""
    bare = lambda row: {name: value for name, value in row.items() if name not in TIMED}
    return [*map(bare, rows)] == [*map(bare, others)]
