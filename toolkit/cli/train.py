"""``fastcar train``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from ..errors import UsageError
from ..generation.run import check_seed
from ..output import check_output_folder
from .console import emit, examples, json_option

__all__ = ["command"]

WORK_BYTES = 1 << 30  # the recorded episodes


@click.command("train", epilog=examples("fastcar train car --out my-car --work /tmp/car"))
@click.argument("model", type=click.Choice(["car"]))
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Checkpoint folder to write.")
@click.option(
    "--work", required=True, type=click.Path(path_type=Path), help="Folder for recordings and finished stages."
)
@click.option("--seed", type=int, default=1, show_default=True)
@json_option
def command(model: str, out: Path, work: Path, seed: int, as_json: bool) -> None:
    """Train MODEL from scratch: record the simulator, train tokenizer and backbone, evaluate, write a checkpoint.

    Takes about an hour on two cores; a stage that is finished in the work folder is not repeated.
    """
    try:
        import gymnasium  # noqa: F401
    except ImportError as error:
        raise UsageError(
            "train", "no gymnasium", "the simulator", "pip install 'fastcar-edge[export,train]'"
        ) from error
    from ...export.car.train import train_car

    check_seed(seed)
    check_output_folder(out.parent)
    check_output_folder(work, WORK_BYTES)
    train_car(out, work, seed)
    metrics = json.loads((out / "metrics.json").read_text("utf-8"))
    emit({"checkpoint": str(out), "metrics": metrics}, as_json, _show)


def _show(result: dict[str, Any]) -> None:
    click.echo(f"Wrote {result['checkpoint']}; its README.md states the figures.")
