"""``fastcar train``."""

from __future__ import annotations

from pathlib import Path

import click

from ..errors import UsageError
from .console import examples

__all__ = ["command"]


@click.command("train", epilog=examples("fastcar train car --out my-car --work /tmp/car"))
@click.argument("model", type=click.Choice(["car"]))
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Checkpoint folder to write.")
@click.option("--work", required=True, type=click.Path(path_type=Path), help="Folder for recordings and finished stages.")
@click.option("--seed", type=int, default=1, show_default=True)
def command(model: str, out: Path, work: Path, seed: int) -> None:
    """Train MODEL from scratch: record the simulator, train tokenizer and backbone, evaluate, write a checkpoint.

    Takes about an hour on two cores; a stage that is finished in the work folder is not repeated.
    """
    try:
        import gymnasium  # noqa: F401
    except ImportError as error:
        raise UsageError("train", "no gymnasium", "the simulator", "pip install 'fastcar-edge[export,train]'") from error
    from ...export.car.train import train_car

    train_car(out, work, seed)
