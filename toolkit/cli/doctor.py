"""``fastcar doctor``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..bundle.bundle import Bundle
from ..doctor import Machine, examine
from .console import emit, examples, json_option, say, table

__all__ = ["command"]


@click.command("doctor", epilog=examples("fastcar doctor", "fastcar doctor car-kv260", "fastcar doctor --json"))
@click.argument("bundle", required=False, type=click.Path(path_type=Path))
@json_option
def command(bundle: Path | None, as_json: bool) -> None:
    """Look for what is missing or wrong on this computer, or on the board this runs on, and say how to mend it.

    With BUNDLE also whether a board has room for a clip of it. Changes nothing. Exits with 1 if there is a problem; a
    note is something optional that is not there.
    """
    found = examine(Machine(), None if bundle is None else Bundle.open(bundle))
    emit(found.as_dict(), as_json, _show)
    if found.problems:
        raise click.exceptions.Exit(1)


def _show(result: dict[str, Any]) -> None:
    checks = result["checks"]
    rows = [(check["name"], check["status"], check["found"]) for check in checks]
    table(f"{result['machine']} {result['board'] or ''}".strip(), rows, ("check", "", "found"))
    for check in checks:
        if check["fix"]:
            say(f"{check['status']}: {check['name']}: {check['fix']}")
    say("no problem found" if not result["problems"] else f"{result['problems']} to mend")
