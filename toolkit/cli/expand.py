"""``fastcar expand``."""

from __future__ import annotations

from pathlib import Path

import click

from ..bundle.bundle import Bundle
from .console import emit, examples, json_option, progress, table

__all__ = ["command"]


@click.command("expand", epilog=examples("fastcar expand vila-u --out vila-u-8bit"))
@click.argument("bundle", type=click.Path(path_type=Path))
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Bundle folder to write.")
@click.option("--overwrite", is_flag=True, help="Replace an existing bundle.")
@json_option
def command(bundle: Path, out: Path, overwrite: bool, as_json: bool) -> None:
    """Multiply the 4-bit weights of BUNDLE out to 8 bits: twice the size, the same bits.

    For models of billions of weights: onnxruntime takes several bytes a weight to load 4-bit ones.
    What a bundle holds for an overlay is left out.
    """
    from ...export.expand import expand_bundle

    with progress() as advance:
        made = expand_bundle(Bundle.open(bundle), out, overwrite, advance)
    size = sum(entry.bytes for entry in made.manifest.files.values())
    emit({"bundle": str(out), "bytes": size}, as_json, _show)


def _show(result: dict) -> None:
    table(f"Wrote {result['bundle']}", [("size", f"{result['bytes']:,} bytes")])
