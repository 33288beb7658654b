"""``fastcar export``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..config import CRITERIA, TAS_HEADS
from ..errors import OutputError
from ..output import check_output_folder
from .console import emit, examples, json_option, progress, recipe_option, record_rows, say, table

if TYPE_CHECKING:
    from ...export.pipeline import Export

__all__ = ["command"]

GB = 1e9


@click.command(
    "export",
    epilog=examples(
        "fastcar export car --recipe w8a8 --out car-w8a8",
        "fastcar export ./my-checkpoint --recipe w4a8 --out my-w4a8",
        "fastcar export car --recipe w4a8 --board kv260 --out car-kv260",
        "fastcar export ./llama-video --frame-layout layout.json --recipe w4a8 --out llama-w4a8",
        "fastcar export car --recipe w8a8 --tas-query pre_rope --out car-release",
        "fastcar export car --recipe w8a8 --max-frames 64 --out car-long",
        "fastcar export ./vila-u --recipe w4a8-nearest --calibrate-on clip1 --calibrate-on clip2 --out vila-u-w4a8",
        "fastcar export car --recipe w8a8 --criterion mlp-input --out car-cosine",
    ),
)
@click.argument("model")
@recipe_option
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Bundle folder to write.")
@click.option(
    "--tas-query",
    type=click.Choice(["post_rope", "pre_rope"]),
    default="post_rope",
    show_default=True,
    help="Query the score uses: after rotary embedding (the formula) or before (the authors' release).",
)
@click.option(
    "--criterion",
    type=click.Choice(CRITERIA),
    default="tas",
    show_default=True,
    help="What replay is decided by: TAS, or the cosine of MLP inputs, to compare with.",
)
@click.option(
    "--tas-heads",
    type=click.Choice(TAS_HEADS),
    default="mean",
    show_default=True,
    help="What the score makes of the heads: their mean (the formula), the largest, or the least.",
)
@click.option(
    "--tas-head-weights",
    type=click.Path(path_type=Path),
    help="JSON file that weights the heads in the score's mean: a list of numbers, one a head, for each layer.",
)
@click.option("--board", help="Also pack program and weights for this overlay, such as kv260.")
@click.option(
    "--frame-layout",
    type=click.Path(path_type=Path),
    help="Where the video lies, for a Hugging Face checkpoint  [default: frame_layout.json in it]",
)
@click.option("--layers", type=int, help="Only so many of the first decoder layers, for a quick trial.")
@click.option(
    "--max-frames", type=int, help="Room for clips of so many frames  [default: as many as the model was trained for]"
)
@click.option("--calibration-clips", type=int, help="At most so many clips to calibrate with  [default: the recipe's]")
@click.option(
    "--calibrate-on",
    multiple=True,
    metavar="CLIP",
    type=click.Path(path_type=Path),
    help="Folder of clips that `fastcar generate` wrote, to calibrate with; may be repeated  [default: the "
    "checkpoint's clips, else random codes]",
)
@click.option("--archive", type=click.Path(path_type=Path), help="Also write the bundle as this single file.")
@click.option("--overwrite", is_flag=True, help="Replace an existing bundle.")
@json_option
def command(
    model: str,
    recipe: str,
    out: Path,
    archive: Path | None,
    overwrite: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Quantize MODEL (`car`, or a checkpoint folder), lower it to ONNX and write a bundle.

    A decoder layer is read, quantized and written at a time. An export that was interrupted or killed goes on with
    the layer where it was when the same command is given again.
    """
    from ...export.pipeline import prepare_export

    if archive:
        _check_archive(archive, out, overwrite)
    export = prepare_export(model, out, recipe=recipe, overwrite=overwrite, **options)
    for reason in _shortages(export):
        say(f"packed it will be, but it will not run on {export.engine.board}: {reason}")
    say(f"needs {export.needs.disk / GB:.1f} GB of disk, about {export.needs.memory / GB:.1f} GB of memory ...")
    with progress() as advance:
        bundle = export.run(advance)
    if archive:
        bundle.archive(archive)
    result = {
        "bundle": str(out),
        "archive": str(archive) if archive else None,
        "recipe": recipe,
        "overlay": bundle.manifest.overlay,
        "record": bundle.manifest.record,
        "bytes": sum(entry.bytes for entry in bundle.manifest.files.values()),
    }
    emit(result, as_json, _show)


def _shortages(export: Export) -> tuple[str, ...]:
    from ...boards import load_board
    from ..board.fit import memory_shortage

    return memory_shortage(export.plan, load_board(export.engine.board)) if export.plan else ()


def _check_archive(archive: Path, out: Path, overwrite: bool) -> None:
    """OutputError, before any work, if the archive cannot be written."""
    if archive.is_dir() or archive.resolve() == out.resolve():
        raise OutputError(archive, "a folder", "the name of a file", "Choose another --archive.")
    if archive.exists() and not overwrite:
        raise OutputError(archive, "exists already", "a new file", "Choose another --archive, or --overwrite.")
    check_output_folder(archive.parent)


def _show(result: dict[str, Any]) -> None:
    rows = [("recipe", result["recipe"]), *record_rows(result["record"]), ("size", f"{result['bytes']:,} bytes")]
    if result["overlay"]:
        rows.insert(1, ("packed for", result["overlay"]))
    table(f"Wrote {result['bundle']}", rows)
