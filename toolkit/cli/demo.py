"""``fastcar demo``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..backends.registry import open_backend
from ..bundle.bundle import MANIFEST, Bundle
from ..generation.calibrate import check_ratio, thresholds_for_ratio
from ..generation.run import check_seed, frames_within
from ..report import summary_table
from ..settings import ReplaySettings
from .clip import check_clip_folder, facts_of, generate_clip, ratio_notice, write_clip
from .console import Advance, command_line, emit, examples, json_option, progress, recipe_option, say, table

if TYPE_CHECKING:
    from ...export.importers import ImportedModel

__all__ = ["command"]


@click.command(
    "demo", epilog=examples("fastcar demo --out demo", "fastcar demo --recipe w4a8 --replay-ratio 0.5 --out demo")
)
@click.option(
    "--out", default="demo", show_default=True, type=click.Path(path_type=Path), help="Folder for all results."
)
@click.option("--model", default="car", show_default=True, help="Built-in model or checkpoint folder.")
@recipe_option
@click.option("--prompt", default="left turn", show_default=True, help="Scene to generate.")
@click.option("--frames", type=int, help="Frames to generate  [default: as many as the model was trained for]")
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--replay-ratio", type=float, default=0.8, show_default=True, help="Share of eligible MLPs to replay.")
@click.option("--policy", default="all", show_default=True, help="How rows decide: independent, mean, all.")
@json_option
def command(out: Path, model: str, recipe: str, prompt: str, as_json: bool, **options: Any) -> None:
    """Run the whole job on a real model: quantize, lower, bundle, generate with replay and dense, compare."""
    from ...export.importers import load_model
    from ...export.pipeline import export_model

    options["frames"] = _check(load_model(model), prompt, options)
    check_clip_folder(out, options["frames"], 2)
    again = command_line("demo", out=out, model=model, recipe=recipe, prompt=prompt, **options)
    with progress() as advance:
        bundle = _bundle(export_model, model, recipe, out / f"bundle-{recipe}", advance)
        result = _compare(bundle, out, prompt, options, advance, again)
    result["bundle"] = str(bundle.path)
    if notice := result.pop("notice"):
        say(notice)
    emit(result, as_json, _show)


def _check(model: ImportedModel, prompt: str, options: dict[str, Any]) -> int:
    """UsageError for what the run could not use, before the export; the number of frames."""
    frames = frames_within(model.name, model.layout, options["frames"])
    model.prompts.encode(prompt, model.layout.prompt_length)
    check_seed(options["seed"])
    check_ratio(options["replay_ratio"], frames)
    ReplaySettings(policy=options["policy"])
    return frames


def _bundle(export_model: Any, model: str, recipe: str, path: Path, advance: Advance) -> Bundle:
    """Export anew each time: the demo shows the job, and a bundle of an older version would show another."""
    return export_model(model, path, recipe=recipe, overwrite=(path / MANIFEST).is_file(), on_progress=advance)


def _compare(
    bundle: Bundle, out: Path, prompt: str, options: dict[str, Any], advance: Advance, again: str
) -> dict[str, Any]:
    sampling = bundle.manifest.sampling
    backend = open_backend("onnxruntime", bundle)
    common = {"frames": options["frames"], "sampling": sampling, "backend": backend}
    wanted = ReplaySettings(policy=options["policy"])
    found = thresholds_for_ratio(
        bundle,
        backend,
        prompt,
        options["replay_ratio"],
        frames=common["frames"],
        seed=options["seed"],
        sampling=sampling,
        replay=wanted,
        on_trial=lambda done, total: advance("finding the threshold", done, total),
    )
    advance("finding the threshold", 1, 1)
    replay = ReplaySettings.uniform(found.threshold, bundle.manifest.config.layers, wanted.policy)
    dense_run = generate_clip(
        bundle, [prompt], ReplaySettings(), options["seed"], advance, label="dense video", **common
    )
    run = generate_clip(bundle, [prompt], replay, options["seed"], advance, label="replay video", **common)
    if not (dense_run.generation.complete and run.generation.complete):
        raise KeyboardInterrupt  # half a comparison is none
    advance("report", 0, 1)
    facts = facts_of(bundle, backend, options["seed"], sampling, replay, again)
    result = write_clip(out, run, dense_run, facts)
    result["notice"] = ratio_notice(options["replay_ratio"], run)
    advance("report", 1, 1)
    return result


def _show(result: dict[str, Any]) -> None:
    table(f"{result['model']}, {result['recipe']}, {result['prompts'][0]!r}", summary_table(result["summary"]))
    for file in result["files"]:
        click.echo(file)
