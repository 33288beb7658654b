"""``fastcar sweep``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from textwrap import fill
from typing import Any

import click

from ..bundle.bundle import Bundle
from ..errors import UsageError
from ..evaluation.execute import Execute, run_in_processes
from ..evaluation.grid import Grid, attentions, baselines, numbers, optional_integers, policies, read_settings
from ..evaluation.ray_execute import LOCAL, check_address, require_ray, run_with_ray
from ..evaluation.setting import Setting
from ..evaluation.statistics import setting_rows
from ..evaluation.store import write_table
from ..evaluation.sweep import default_processes, plan_sweep, run_sweep
from ..evaluation.vbench import read_vbench_prompts, video_bytes, write_vbench_videos
from ..generation.calibrate import PROMISED
from ..planner.published import published_replay
from ..report.sweep import PublishedPoint, SweepFacts, write_sweep_report
from .clip import machine, versions
from .console import command_line, emit, examples, json_option, progress, say, table
from .prompt_file import prompt_lines

__all__ = ["command"]

NARROW = 12  # letters of a setting's line, for the table to fit 80 columns
GRID = ("thresholds", "replay_ratios", "hold_replay_ratios", "max_ages", "refresh", "attention", "baseline")


@click.command(
    "sweep",
    epilog=examples(
        "fastcar sweep car-w8a8 --replay-ratios 0.2,0.5,0.8 --policies all --prompts scenes.txt --out sweep",
        "fastcar sweep car-w8a8 car-w4a8 --thresholds 1.5,2 --prompt braking --seeds 3 --out sweep --json",
        "fastcar sweep car-w8a8 --replay-ratios 0.5 --baseline random:0.5 --baseline layers:1,2 --prompt slow --out a",
        "fastcar sweep car-w8a8 --replay-ratios 0.5 --attention full,64+4 --max-ages none,1 --prompt slow --out a",
        "fastcar sweep car-w8a8 --replay-ratios 0.5 --prompts scenes.txt --ray head-node:6379 --out sweep",
        "fastcar sweep vila-u --replay-ratios 0.8 --policies all --vbench VBench_full_info.json --out sweep",
        "fastcar sweep car-w8a8 --settings settings.toml --prompts scenes.txt --frames 8 --processes 2 --out sweep",
    ),
)
@click.argument("bundles", metavar="BUNDLE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--thresholds", help="Thresholds in units of TAS, as 1.5,2.")
@click.option("--replay-ratios", help="Shares of the eligible evaluations, as 0.2,0.5; thresholds are found first.")
@click.option("--hold-replay-ratios", help="Shares to hold in every frame, as 0.5.")
@click.option("--policies", default="independent", show_default=True, help="independent, mean, all.")
@click.option("--max-ages", help="Limits on the age of a replayed value, as none,1.")
@click.option("--refresh", help="Every how many frames one computes everything, as none,4.")
@click.option("--attention", help="Windows, with sinks or columns, as full,256+4,128:2; each is run dense, too.")
@click.option("--baseline", multiple=True, help="random:SHARE, by lot; layers:1,2,3, always and the others never.")
@click.option("--settings", type=click.Path(path_type=Path), help="TOML file of [[setting]] tables instead of a grid.")
@click.option("--prompts", type=click.Path(path_type=Path), help="Text file, a prompt a line.")
@click.option("--prompt", multiple=True, help="A prompt; repeat for several.")
@click.option(
    "--vbench",
    type=click.Path(path_type=Path),
    help="VBench's prompts (JSON, prompt_en and dimension) instead; writes videos/ under the names VBench looks for.",
)
@click.option("--calibration-prompts", type=click.Path(path_type=Path), help="Text file of prompts to find thresholds "
              "on  [default: up to three others that the bundle lists]")  # fmt: skip
@click.option("--seeds", type=int, default=5, show_default=True, help="Runs of each prompt, with seeds 0, 1, ...")
@click.option("--frames", type=int, help="Frames to generate  [default: as many as the model was trained for]")
@click.option("--guidance", type=float, help="Classifier-free guidance scale, 1 for none  [default: the bundle's]")
@click.option("--backend", default="onnxruntime", show_default=True, help="onnxruntime; reference (NumPy, slow).")
@click.option(
    "--processes",
    type=click.IntRange(1, 1024),
    help="Of one thread each  [default: one a core; with --ray ADDRESS all of the cluster]",
)
@click.option("--ray", metavar="ADDRESS", help="Run on the Ray cluster there; local: start one on this machine.")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Folder of the results; goes on in it.")
@json_option
def command(bundles: tuple[Path, ...], out: Path, as_json: bool, **options: Any) -> None:
    """Run every setting on every prompt and seed, dense ones too, and measure: quality against the dense run of the
    same prompt and seed, time, bytes.

    Writes runs.parquet and runs.csv, a row a run, and sweep.html. The same command goes on where it was interrupted.
    """
    settings = _settings(options)
    prompts = _prompts(options)
    trial = options["calibration_prompts"]
    if options["backend"] not in ("onnxruntime", "reference"):
        expected = "onnxruntime or reference: many runs beside each other"
        raise UsageError("--backend", options["backend"], expected, "Choose one of these.")
    execute = _execute(options)
    opened = [Bundle.open(path) for path in bundles]
    videos = len(opened) * len(settings) * len(prompts) * options["seeds"] if options["vbench"] else 0
    longest = max(bundle.manifest.frame_layout.frames for bundle in opened)
    plan = plan_sweep(
        opened,
        settings,
        prompts,
        options["seeds"],
        out,
        frames=options["frames"],
        guidance=options["guidance"],
        trial_prompts=prompt_lines("--calibration-prompts", trial) if trial else (),
        backend=options["backend"],
        prompts_option="--vbench" if options["vbench"] else "--prompts",
        bytes_needed=video_bytes(options["frames"] or longest, videos),
    )
    for name, reason in plan.uncounted.items():
        say(f"note: bytes of {name} are not counted: {reason}")
    elsewhere = options["ray"] not in (None, LOCAL)
    processes = options["processes"] or (0 if elsewhere else default_processes(opened))
    with progress() as advance:
        rows = run_sweep(plan, execute, processes, advance, say)
        bundles_of = dict(zip(plan.subjects, opened, strict=True))
        folders = write_vbench_videos(out, bundles_of, rows, advance) if options["vbench"] else []
    again = command_line("sweep", *map(str, bundles), **options, out=out)
    notes = [f"Bytes of {name} are not counted: {reason}." for name, reason in plan.uncounted.items()]
    for note in (missed := _missed(rows)):
        say(f"note: {note}")
    source, points = _published()
    facts = SweepFacts(machine(), processes, versions(), again, points, source, notes + missed)
    files = [*write_table(out, rows), write_sweep_report(out / "sweep.html", rows, facts), *folders]
    result = {"runs": len(rows), "processes": processes, "settings": setting_rows(rows), "files": [*map(str, files)]}
    emit(result, as_json, _show)


def _missed(rows: list[dict[str, Any]]) -> list[str]:
    """Settings that replayed another share than asked for."""
    found = []
    for one in setting_rows(rows):
        share = one["eligible_replay_ratio"]
        if one["wanted_ratio"] is not None and share and abs(share["mean"] - one["wanted_ratio"]) > PROMISED:
            found.append(f"{one['bundle']}, {one['setting']}: replayed {share['mean']:.2f} of the eligible on average.")
    return found


def _published() -> tuple[str, list[PublishedPoint]]:
    """What the paper of replay measured, on another model and machine."""
    paper = published_replay()
    points = []
    for row in paper.rows:
        words = [f"{100 * row.ratio:.0f} %"] if row.ratio else []
        words += [f"window {row.window}"] if row.window else []
        points.append(PublishedPoint(", ".join(words), paper.speed_up(row), row.psnr_db))
    return f"{paper.work}, another model and machine: {paper.model_name} on {paper.board}", points


def _settings(options: dict[str, Any]) -> tuple[Setting, ...]:
    if options["settings"]:
        if given := [name for name in GRID if options[name]]:
            flag = "--" + given[0].replace("_", "-")
            raise UsageError("--settings", f"{flag} beside it", "the file or a grid", f"Drop {flag}.")
        return read_settings(options["settings"])
    grid = Grid(
        numbers("--thresholds", options["thresholds"]),
        numbers("--replay-ratios", options["replay_ratios"]),
        numbers("--hold-replay-ratios", options["hold_replay_ratios"]),
        policies("--policies", options["policies"]),
        optional_integers("--max-ages", options["max_ages"]),
        optional_integers("--refresh", options["refresh"]),
        attentions("--attention", options["attention"]),
        baselines("--baseline", options["baseline"]),
    )
    return grid.settings()


def _prompts(options: dict[str, Any]) -> list[str]:
    given = [*options["prompt"], *(prompt_lines("--prompts", options["prompts"]) if options["prompts"] else ())]
    if options["vbench"]:
        if given:
            raise UsageError("--vbench", "--prompt or --prompts beside it", "VBench's own prompts", "Drop the others.")
        return list(read_vbench_prompts(options["vbench"]))
    if not given:
        raise UsageError("--prompts", "none", "a file of prompts, --prompt, or --vbench", "Name one.")
    return given


def _execute(options: dict[str, Any]) -> Execute:
    if options["ray"] is None:
        return run_in_processes
    require_ray()
    check_address(options["ray"])
    return partial(run_with_ray, address=options["ray"])


def _show(result: dict[str, Any]) -> None:
    header = ("setting", "replayed", "speed-up", "MB/step", "PSNR dB", "codes", "NLL")
    rows, alone = [], len({one["bundle"] for one in result["settings"]}) == 1
    for one in result["settings"]:
        rows.append(
            (
                fill(one["setting"] if alone else f"{one['bundle']}: {one['setting']}", NARROW, break_on_hyphens=False),
                _percent(one["eligible_replay_ratio"]),
                _spread(one["speed_up"], ".2f"),
                _spread(one["bytes_per_step"], ".3f", 1e-6),
                "equal" if one["psnr_db"] is None and one["identical"] else _spread(one["psnr_db"], ".2f"),
                _percent(one["code_agreement"]),
                _spread(one["nll"], ".3f"),
            )
        )
    table(f"{result['runs']} runs: mean, and standard deviation over prompts and seeds in brackets", rows, header)
    for file in result["files"]:
        click.echo(file)


def _spread(pair: dict[str, float] | None, form: str, unit: float = 1.0) -> str:
    return "" if pair is None else f"{unit * pair['mean']:{form}} ({unit * pair['spread']:{form}})"


def _percent(pair: dict[str, float] | None) -> str:
    return "" if pair is None else f"{100 * pair['mean']:.1f} %"
