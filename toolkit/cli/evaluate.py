"""``fastcar evaluate``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..bundle.bundle import Bundle
from ..errors import UsageError
from ..evaluation.execute import run_in_processes
from ..evaluation.setting import Setting
from ..evaluation.statistics import setting_rows
from ..evaluation.store import require_polars, write_table
from ..evaluation.sweep import default_processes, plan_sweep, run_sweep
from ..generation.run import frames_within
from ..output import check_output_folder, replacing
from ..report.evaluation import evaluation_figure, evaluation_table
from ..report.sweep import SweepFacts, write_sweep_report
from ..settings import FULL_ATTENTION, ReplaySettings
from ..tuning.teacher import Scene
from ..tuning.tune import Request, Tuned, tune
from ..tuning.workers import Followers, FollowSettings
from .clip import machine, versions
from .console import Advance, command_line, emit, examples, json_option, progress, say, table

__all__ = ["command"]

RATIOS = (0.2, 0.5, 0.8)
TUNED_ON = ("straight", "sharp right turn")
HELD_OUT = ("sliding", "off track")
MEASURED_ON = ("left turn", "right turn", "accelerating", "braking")
BYTES = 1 << 30


@click.command("evaluate", epilog=examples("fastcar evaluate --out evaluation"))
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Folder of the results; goes on in it.")
@click.option("--seeds", type=click.IntRange(1), default=2, show_default=True, help="Clips of each of four prompts.")
@click.option("--frames", type=int, help="Of each clip  [default: all 16]")
@click.option("--processes", type=click.IntRange(1, 256), help="[default: one a core]")
@json_option
def command(out: Path, seeds: int, frames: int | None, processes: int | None, as_json: bool) -> None:
    """Make the README's evaluation of replay with the model `car`: table, figure, and every run behind them.

    Exports the bundles, tunes thresholds on two prompts, and measures on four others: TAS with one threshold and with
    one a layer, the similarity of MLP inputs, lots, fixed layers, policies, limits on age, windows. Half an hour on two
    cores.
    """
    check_output_folder(out, BYTES)
    require_polars()
    _check_frames(frames)
    bundles = {criterion: _bundle(out / f"car-{criterion}", criterion) for criterion in ("tas", "mlp-input")}
    number = processes or default_processes(list(bundles.values()))
    with progress() as advance:
        tuned = _tuned(bundles["tas"], frames, number, advance)
        plans = [
            plan_sweep(
                [bundles[criterion]],
                settings,
                MEASURED_ON,
                seeds,
                out / f"runs-{criterion}",
                frames=frames,
                trial_prompts=TUNED_ON[:1],
            )
            for criterion, settings in (("tas", _settings(bundles["tas"], tuned)), ("mlp-input", _similarity()))
        ]
        rows = [row for plan in plans for row in run_sweep(plan, run_in_processes, number, advance, say)]
    command_again = command_line("evaluate", seeds=seeds, frames=frames, processes=processes, out=out)
    facts = SweepFacts(machine(), number, versions(), command_again)
    settings = setting_rows(rows)
    files = [*write_table(out, rows), write_sweep_report(out / "sweep.html", rows, facts)]
    for name, text in (("evaluation.md", evaluation_table(settings)), ("evaluation.svg", evaluation_figure(settings))):
        with replacing(out / name) as partial:
            partial.write_text(text, "utf-8")
        files.append(out / name)
    held_out = {ratio: {way: vars(found) for way, found in one.held_out.items()} for ratio, one in tuned.items()}
    emit({"settings": settings, "held_out": held_out, "files": [*map(str, files)]}, as_json, _show)


def _check_frames(frames: int | None) -> None:
    """UsageError, before the minutes that exports take."""
    from ...export.importers import load_model

    if frames_within("car", load_model("car").layout, frames) < 2:
        raise UsageError("--frames", str(frames), "at least 2: frame 0 never replays", "Ask for more.")


def _bundle(path: Path, criterion: str) -> Bundle:
    if not path.exists():
        from ...export.pipeline import export_model

        say(f"exporting car, {criterion} ...")
        export_model("car", path, criterion=criterion)
    return Bundle.open(path)


def _tuned(bundle: Bundle, frames: int | None, processes: int, advance: Advance) -> dict[float, Tuned]:
    """By ratio, for rows that decide together."""
    manifest = bundle.manifest
    count = frames or manifest.frame_layout.frames
    scenes = [tuple(Scene(prompt, 100 + i) for i, prompt in enumerate(part)) for part in (TUNED_ON, HELD_OUT)]
    settings = FollowSettings(bundle.path, count, manifest.sampling, FULL_ATTENTION)
    found: dict[float, Tuned] = {}
    with Followers(settings, processes) as followers:
        for ratio in RATIOS:
            request = Request(*scenes, ReplaySettings(policy="all"), ratio)
            stage = lambda name, done, total, ratio=ratio: advance(f"{ratio:g}: {name}", done, total)
            known = next(iter(found.values()), None)
            found[ratio] = tune(manifest.config.layers, followers, request, stage, known)
    return found


def _settings(bundle: Bundle, tuned: dict[float, Tuned]) -> list[Setting]:
    first = next(iter(tuned.values()))
    by_sensitivity = sorted(range(bundle.manifest.config.layers), key=lambda layer: first.sensitivity[layer][-1])
    uniform = {ratio: one.candidates[0].measured.thresholds[0] for ratio, one in tuned.items()}
    never = float("inf")
    layers = {
        ratio: tuple(never if tau is None else tau for tau in one.chosen.measured.thresholds)
        for ratio, one in tuned.items()
    }
    joint = {"policy": "all"}
    found = [Setting(name="dense")]
    found += [Setting(name=f"TAS, one threshold, {r:g}", threshold=uniform[r], **joint) for r in RATIOS]
    found += [Setting(name=f"TAS, one a layer, {r:g}", threshold=layers[r], **joint) for r in RATIOS]
    found += [Setting(name=f"lots, {r:g}", random=r, **joint) for r in RATIOS]
    for count in (1, 3, 5):
        chosen = tuple(sorted(by_sensitivity[:count]))
        found.append(Setting(name=f"layers {', '.join(map(str, chosen))}", layers=chosen, **joint))
    half, most = {"threshold": uniform[0.5]}, {"threshold": uniform[0.8]}
    found += [Setting(name=f"policy {name}, 0.5", replay_ratio=0.5, policy=name) for name in ("independent", "mean")]
    found.append(Setting(name="held in every frame, 0.5", hold_replay_ratio=0.5, **joint))
    found.append(Setting(name="0.8, never twice in a row", max_age=1, **most, **joint))
    found.append(Setting(name="0.8, refreshed every 4 frames", refresh=4, **most, **joint))
    window = {"attention_window": 256, "attention_sinks": 4}
    found.append(Setting(name="window 256", **window))
    found.append(Setting(name="window 64", attention_window=64, attention_sinks=4))
    found.append(Setting(name="window 64, 4 columns", attention_window=64, attention_sinks=4, attention_columns=4))
    found.append(Setting(name="0.5, window 256", **half, **window, **joint))
    return found


def _similarity() -> list[Setting]:
    found = [Setting(name=f"similarity of MLP inputs, {r:g}", replay_ratio=r, policy="all") for r in RATIOS]
    return [Setting(name="dense"), *found]


def _show(result: dict[str, Any]) -> None:
    rows = [
        (one["setting"], *(f"{one[name]['mean']:.4g}" if one[name] else "" for name in SHOWN))
        for one in result["settings"]
    ]
    table("means over prompts and seeds", rows, ("setting", *SHOWN.values()))
    for file in result["files"]:
        click.echo(file)


SHOWN = {
    "eligible_replay_ratio": "replayed",
    "psnr_db": "PSNR",
    "code_agreement": "equal codes",
    "nll": "nats/code",
    "bytes_per_step": "bytes/step",
    "speed_up": "speed-up",
}
