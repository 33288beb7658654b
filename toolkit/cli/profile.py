"""``fastcar profile``."""

from __future__ import annotations

import resource
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from ..backends.step_profile import profile_steps
from ..bundle.bundle import Bundle
from ..errors import UsageError
from .console import emit, examples, json_option, say, table

__all__ = ["command"]


@click.command("profile", epilog=examples("fastcar profile car-w8a8", "fastcar profile car-w8a8 --steps 20 --json"))
@click.argument("bundle", type=click.Path(path_type=Path))
@click.option("--steps", type=int, default=3, show_default=True, help="Steps to time of each kind.")
@click.option("--threads", type=int, help="Of onnxruntime  [default: its choice]")
@json_option
def command(bundle: Path, steps: int, threads: int | None, as_json: bool) -> None:
    """Time a step of BUNDLE under onnxruntime, node by node: dense, and with every MLP replayed.

    The ratio of the two is the most that replay can gain on this computer.
    """
    for name, value in (("--steps", steps), ("--threads", threads)):
        if value is not None and value < 1:
            raise UsageError(name, str(value), "at least 1", "Choose a larger number.")
    opened = Bundle.open(bundle)
    say("loading and timing ...")
    profile = profile_steps(opened, steps, threads)
    peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    facts = {"bundle": str(bundle), "ratio": profile.ratio, "peak_resident_bytes": peak, **asdict(profile)}
    emit(facts, as_json, _show)


def _show(facts: dict[str, Any]) -> None:
    dense, replayed = facts["dense"], facts["all_replayed"]
    names = sorted({*dense["nodes"], *replayed["nodes"]}, key=lambda name: -dense["nodes"].get(name, 0))
    rows = [(name, *(f"{1e3 * step['nodes'].get(name, 0):.2f}" for step in (dense, replayed))) for name in names]
    rows.append(("whole step", *(f"{1e3 * step['total']:.2f}" for step in (dense, replayed))))
    title = f"{facts['bundle']}: milliseconds of a step at position {facts['position']}"
    table(title, rows, ("node", "dense", "all replayed"))
    table(
        "",
        [
            ("dense / all replayed", f"{facts['ratio']:.2f}"),
            ("MLP evaluations replayed", f"{100 * replayed['replayed']:.0f} %"),
            ("loaded in", f"{facts['loaded']:.1f} s"),
            ("peak resident memory", f"{facts['peak_resident_bytes'] / 1e9:.2f} GB"),
        ],
    )
