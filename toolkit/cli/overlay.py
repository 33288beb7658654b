"""``fastcar overlay``: build an overlay with AMD's tools, and show what was built."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from ...overlays.flow.choose import OPTIONS, choose_engine
from ...overlays.flow.collect import OVERLAY, read_overlay
from ...overlays.flow.errors import ReportError
from ...overlays.flow.layout import Build, default_folder
from ...overlays.flow.plan import Choice, Step, command_of, plan
from ...overlays.flow.run import check_folder, run
from ...overlays.flow.tcl import argument_words
from ...overlays.flow.tools import Toolchain, find_tools
from ..program.engine import EngineConfig
from .console import emit, examples, json_option, progress, say, table

__all__ = ["command"]


@click.group(
    "overlay",
    epilog=examples(
        "fastcar overlay build --board kv260 --dry-run", "fastcar overlay show build/overlays/kv260-* --json"
    ),
)
def command() -> None:
    """Build an overlay with AMD's Vitis HLS and Vivado, or show what was built.

    `build --board NAME --dry-run` prints every command and does nothing; both take --json.
    """


MEANINGS = {
    "groups": "Processing groups of each of the four ports.",
    "vector": "Lanes of the norm and quantization units.",
    "rows": "Sequences of a step.",
    "max_group": "Most query heads of a key/value head.",
    "max_layers": "Most layers of a model.",
    "max_heads": "Most heads of a model.",
    "max_kv_heads": "Most key/value heads of a model.",
    "max_slots": "Most positions of a clip.",
    "max_codes": "Most codes of a model.",
    "weight_fifo_beats": "Prefetch depth of each port.",
    "clock_mhz": "The engine's clock.",
}


def engine_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """An option for every number of the configuration; by default the engine's own."""
    for field, option in reversed(OPTIONS.items()):
        kind = EngineConfig.model_fields[field].annotation
        unit = "MHZ" if field == "clock_mhz" else "N"
        about = MEANINGS.get(field) or f"Largest {option.removeprefix('--max-').replace('-', ' ')} of a model."
        function = click.option(option, field, type=kind, metavar=unit, help=about)(function)
    return function


@command.command(
    "build",
    epilog=examples(
        "fastcar overlay build --board kv260 --dry-run",
        "fastcar overlay build --board kv260",
        "fastcar overlay build --board zcu104 --groups 4 --clock 250 --out build/slow",
        "fastcar overlay build --board kv260 --from implementation",
    ),
)
@click.option("--board", help="Name of a board, or its .toml file  [default: the engine's]")
@click.option("--engine", help="Name of an engine, or its .toml file  [default: the board's]")
@engine_options
@click.option("--out", type=click.Path(path_type=Path), help="Folder of the build  [default: build/overlays/ENGINE-ID]")
@click.option("--from", "start", metavar="PHASE", help="Do this phase and all after it again.")
@click.option("--only", metavar="PHASE", help="Do this phase again, and no other.")
@click.option("--jobs", type=click.IntRange(1, 64), default=2, show_default=True, help="Runs of Vivado at once.")
@click.option("--dry-run", is_flag=True, help="Print every command and do nothing.")
@json_option
def build(
    board: str | None, engine: str | None, out: Path | None, start: str | None, only: str | None,
    jobs: int, dry_run: bool, as_json: bool, **values: float | None,
) -> None:  # fmt: skip
    """Take an engine's configuration to fastcar.bit and fastcar.hwh. Takes hours; stopped, it resumes.

    What is done and still holds is not done again. A changed option gives an engine of its own, whose build id differs:
    pack bundles for it with `fastcar export --board FOLDER/config/engine.toml`.
    """
    changes = {field: value for field, value in values.items() if value is not None}
    chosen, target = choose_engine(board, engine, changes)
    job = Build(chosen, target, (out or default_folder(chosen)).resolve(), jobs)
    check_folder(job)
    choice, tools = Choice(start, only), find_tools()
    about = {"folder": str(job.folder), "engine": chosen.config.name, "build_id": f"{chosen.config.build_id:08x}"}
    if dry_run:
        steps = [_command(job, step, tools) for step in plan(job, tools, choice)]
        emit({**about, "dry_run": True, "unusable": dict(tools.unusable), "phases": steps}, as_json, _show_commands)
        return
    with progress() as advance:
        record = run(job, tools, choice, advance)
    emit({**about, "dry_run": False, "phases": record}, as_json, _show_run)


@command.command("show", epilog=examples("fastcar overlay show build/overlays/kv260-*"))
@click.argument("folder", type=click.Path(path_type=Path))
@json_option
def show(folder: Path, as_json: bool) -> None:
    """Show what a build made, beside the estimate (overlay.json in FOLDER)."""
    record = read_overlay(folder)
    try:
        emit(record, as_json, _show_overlay)
    except (KeyError, TypeError, AttributeError, ValueError) as error:  # of the right format, and edited since
        fix = "Run `fastcar overlay build` again with --from collect."
        found = f"a record without what it shows ({error!r})"
        raise ReportError(folder, found, f"a complete {OVERLAY}", fix) from error


def _command(job: Build, step: Step, tools: Toolchain) -> dict[str, Any]:
    phase = step.phase
    return {
        "phase": phase.name,
        "about": phase.about,
        "runs": step.runs,
        "command": command_of(job, phase, tools),
        "script": str(phase.script_of(job)) if phase.script else None,
        "arguments": argument_words(phase.arguments(job)),
        "makes": list(phase.makes),
    }


def _show_commands(result: dict[str, Any]) -> None:
    click.echo(f"# {result['engine']}, build {result['build_id']}, in {result['folder']}; nothing is done")
    for step in result["phases"]:
        state = "" if step["runs"] else " (not in this run: done, or not asked for)"
        click.echo(f"\n# {step['phase']}: {step['about']}{state}")
        click.echo(shlex.join(step["command"]) if step["command"] else "# by fastcar itself")
        if step["script"]:
            click.echo(f"#   runs {shlex.join([step['script'], *step['arguments']])}")
        if step["makes"]:
            click.echo(f"#   makes {' '.join(step['makes'])}")
    for reason in result["unusable"].values():
        say(f"not usable here: {reason}; command lines of the newest version are shown")


def _show_run(result: dict[str, Any]) -> None:
    rows = [
        (step["phase"], "done" if step["ran"] else "was done", f"{step['seconds']:.0f} s", step["version"] or "")
        for step in result["phases"]
    ]
    table(f"{result['engine']}, build {result['build_id']}", rows, ("phase", "", "took", "version"))
    folder = Path(result["folder"])
    if (folder / "artifacts" / OVERLAY).is_file():
        click.echo(f"{folder / 'artifacts'}: fastcar.bit, fastcar.hwh")
        click.echo(f"What was built: fastcar overlay show {shlex.quote(str(folder))}")


def _show_overlay(result: dict[str, Any]) -> None:
    clock, power = result["clock"], result["power"]
    rows = [
        (name, *(_number(figures[key]) for key in ("built", "hls", "estimated", "available")))
        for name, figures in result["resources"].items()
    ]
    title = f"{result['engine']} on {result['board']}, build {result['build_id']}"
    table(title, rows, ("", "built", "engine, by HLS", "engine, estimated", "device"))
    fmax = "unknown" if clock["fmax_mhz"] is None else f"{clock['fmax_mhz']:.1f} MHz"
    slacks = ", ".join(f"{key} {_number(clock[f'{key}_ns'])}" for key in ("setup", "hold", "pulse"))
    facts = [
        ("clock", f"{clock['target_mhz']:g} MHz asked for, at most {fmax}"),
        ("timing", f"{'met' if clock['met'] else 'NOT met'}; worst slack in ns: {slacks}"),
        ("power", f"{power['total']:g} W, confidence {power['confidence']} ({power['source']})"),
        ("power, planned", f"{power['planned']:.1f} W (the planner's model, +-40 %)"),
        ("co-simulation", result["cosim"]["status"]),
        ("tools", f"Vitis HLS {result['tools']['hls']}, Vivado {result['tools']['vivado']}"),
    ]
    table("", [*facts, *((f"II of {loop['function']}, {loop['name']}", str(loop["ii"])) for loop in result["loops"])])
    for violation in result["violations"]:
        say(f"violation: {violation}")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:g}" if abs(value) < 1e5 else f"{value:.0f}"
