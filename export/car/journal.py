"""What a training run has done so far: the cost and the figures of every finished stage, kept beside its data."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

__all__ = ["Journal", "progress"]


def _cpu_seconds() -> float:
    """Processor time of this process and of its finished children."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


class Journal:
    """``journal.json`` in the working folder: stage name -> figures, ``wall_minutes`` and ``cpu_minutes``."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "journal.json"
        self.stages: dict[str, dict[str, Any]] = json.loads(self.path.read_text("utf-8")) if self.path.exists() else {}

    @contextmanager
    def stage(self, name: str) -> Iterator[dict[str, Any]]:
        """Keeps the figures that the block puts into the dictionary, and adds its cost to that of earlier attempts."""
        figures: dict[str, Any] = dict(self.stages.get(name, {}))
        wall, cpu = time.monotonic(), _cpu_seconds()
        yield figures
        figures["wall_minutes"] = round(figures.get("wall_minutes", 0) + (time.monotonic() - wall) / 60, 1)
        figures["cpu_minutes"] = round(figures.get("cpu_minutes", 0) + (_cpu_seconds() - cpu) / 60, 1)
        self.stages[name] = figures
        partial = self.path.with_suffix(".tmp")
        partial.write_text(json.dumps(self.stages, indent=1))
        partial.rename(self.path)

    def total(self, figure: str) -> float:
        return round(sum(stage[figure] for stage in self.stages.values()), 1)


@contextmanager
def progress(text: str, total: int) -> Iterator[Callable[..., None]]:
    """A progress bar on stderr; call the value once per unit of work, with a few words on how it goes.

    Where stderr is not a terminal, a line is printed about forty times instead.
    """
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task, done = bar.add_task(text, total=total, note=""), 0

        def advance(note: str = "") -> None:
            nonlocal done
            done += 1
            bar.update(task, advance=1, note=note)
            if not console.is_terminal and (done % max(1, total // 40) == 0 or done == total):
                console.print(f"{time.strftime('%H:%M:%S')} {text} {done}/{total} {note}", highlight=False)

        yield advance
