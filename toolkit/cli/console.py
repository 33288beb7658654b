"""What every command shares: progress on stderr, results on stdout, JSON on request."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

__all__ = [
    "Advance",
    "command_line",
    "emit",
    "examples",
    "json_option",
    "plain",
    "progress",
    "recipe_option",
    "record_rows",
    "say",
    "table",
]

SHORT = 30  # letters of a cell that is no sentence

STDERR = Console(stderr=True, highlight=False)
STDOUT = Console(highlight=False)

Advance = Callable[[str, int, int], None]
"""(stage, done, total): called as work proceeds."""

json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON on stdout.")
recipe_option = click.option(
    "--recipe",
    default="w8a8",
    show_default=True,
    help="Quantization recipe: w8a8, w4a8, or w4a8-nearest (4 bits in a fraction of the time, for large models).",
)


def examples(*lines: str) -> str:
    """The examples block at the end of a command's help."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


@contextmanager
def progress() -> Iterator[Advance]:
    """A bar a stage on stderr, with the time left; silent when stderr is not a terminal, but for a line a stage."""
    columns = (
        TextColumn("{task.description:<28}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=STDERR, disable=not STDERR.is_terminal) as bars:
        tasks: dict[str, Any] = {}

        def advance(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=total)
                if not STDERR.is_terminal:
                    STDERR.print(f"{stage} ...")
            bars.update(tasks[stage], completed=done, total=total)

        yield advance


def say(text: str) -> None:
    """A line for people; never mixed with the JSON on stdout."""
    STDERR.print(text, markup=False, soft_wrap=True)


def table(title: str, rows: list[tuple[str, ...]], header: tuple[str, ...] = ("", "")) -> None:
    """On stdout, under a title that is never wrapped: it may hold a path to copy.

    Numbers end at the right, in line; a column that holds sentences starts at the left. Line ends in the first column
    are kept, and it is not wrapped elsewhere then.
    """
    out = Table(show_header=any(header))
    for index, name in enumerate(header):
        cells = [row[index] for row in rows]
        left = index == 0 or any(len(cell) > SHORT for cell in cells)
        kept = index == 0 and any("\n" in cell for cell in cells)
        out.add_column(name, justify="left" if left else "right", overflow="fold", no_wrap=kept)
    for row in rows:
        out.add_row(*map(Text, row))
    STDOUT.print(title, markup=False, soft_wrap=True)
    STDOUT.print(out)


def record_rows(record: dict[str, Any]) -> list[tuple[str, str]]:
    """What a bundle records about its export, with units, as rows of ``table``."""
    units = {"cross_entropy_fp32": ", nats/code", "cross_entropy_quantized": ", nats/code"}
    names = {"cross_entropy_change_percent": "cross entropy, change"}
    rows = []
    for key, value in record.items():
        text = "; ".join(map(str, value)) or "none" if isinstance(value, list) else str(value)
        if isinstance(value, float):
            text = f"{value:+.2f} %" if key in names else f"{value:.4f}"
        rows.append((names.get(key, key.replace("_", " ") + units.get(key, "")), text))
    return rows


def emit(result: dict[str, Any], as_json: bool, show: Callable[[dict[str, Any]], None]) -> None:
    """Print ``result`` as JSON, or let ``show`` print it for a person."""
    if as_json:
        click.echo(json.dumps(plain(result), indent=1))
    else:
        show(result)


def plain(value: Any) -> Any:
    """The value in types JSON knows: NumPy scalars and arrays unpacked, NaN as None, infinities as text.

    "Infinity" and "-Infinity": a threshold that replays nothing, or everything, has to stay apart from None.
    """
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if hasattr(value, "item") and getattr(value, "ndim", 0) == 0:
        value = value.item()
    elif hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value if isinstance(value, int | float | str | bool | None) else str(value)


def command_line(*words: str, **options: Any) -> str:
    """The command that gives a run again: ``words``, then every option that has a value; lists repeat theirs."""
    line = ["fastcar", *words]
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        if value is None or value is False:
            continue
        for item in value if type(value) in (list, tuple) else (value,):
            line += [flag] if item is True else [flag, str(item)]
    return shlex.join(line)
