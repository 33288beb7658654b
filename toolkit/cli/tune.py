"""``fastcar tune``."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np

from ..bundle.bundle import Bundle
from ..errors import UsageError
from ..evaluation.metrics import WINDOW
from ..evaluation.sweep import check_prompts
from ..generation.calibrate import check_ratio
from ..generation.run import check_frames, check_seed
from ..output import check_output_folder
from ..report.settings_table import threshold_text
from ..settings import POLICIES, AttentionSettings, ReplaySettings
from ..tuning.quality import TARGETS, Target
from ..tuning.teacher import Scene
from ..tuning.tune import Request, store_thresholds, tune
from ..tuning.workers import Followers, FollowSettings
from ..video.decode import FrameDecoder
from .console import emit, examples, json_option, progress, table
from .options import attention_of, attention_options, setting_words
from .prompt_file import prompt_lines

__all__ = ["command"]

TARGET_OPTIONS = (
    click.option("--min-psnr", type=float, help="The most replay whose clips keep this PSNR against dense, in dB."),
    click.option("--min-ssim", type=float, help="Likewise, SSIM."),
    click.option("--min-agreement", type=float, help="Likewise, the share of codes equal to dense."),
    click.option(
        "--max-divergence", type=float, help="Likewise, KL of the predictions along dense clips, nats a code."
    ),
)


def _target_options(command: Any) -> Any:
    for option in reversed(TARGET_OPTIONS):
        command = option(command)
    return command


@click.command(
    "tune",
    epilog=examples(
        "fastcar tune car-w8a8 --replay-ratio 0.5",
        "fastcar tune car-w8a8 --max-divergence 0.1 --policy all",
        "fastcar tune my-bundle --replay-ratio 0.8 --prompts train.txt --held-out test.txt",
    ),
)
@click.argument("bundle", type=click.Path(path_type=Path))
@click.option("--replay-ratio", type=float, help="Share of the eligible MLP evaluations to replay.")
@_target_options
@click.option("--policy", default="all", show_default=True, help=f"How rows decide: {', '.join(POLICIES)}.")
@click.option("--max-age", type=int, help="Replay a value at most this often in a row.")
@click.option("--refresh", type=int, help="Every so many frames one computes everything.")
@attention_options
@click.option("--uniform", is_flag=True, help="One threshold for all layers instead of one a layer.")
@click.option(
    "--prompts", type=click.Path(path_type=Path), help="Prompts to tune on, one a line  [default: known ones]"
)
@click.option("--held-out", type=click.Path(path_type=Path), help="Prompts to report on  [default: other known ones]")
@click.option("--clips", type=int, default=4, show_default=True, help="Clips to tune on, and as many held out.")
@click.option("--frames", type=int, help="Of each clip  [default: as many as the model was trained for]")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the first clip; the next ones follow.")
@click.option("--processes", type=click.IntRange(1, 256), help="[default: one a core]")
@click.option("--dry-run", is_flag=True, help="Report, and leave the bundle as it is.")
@json_option
def command(bundle: Path, as_json: bool, **options: Any) -> None:
    """Find the thresholds of BUNDLE (a folder) for a replay ratio or a quality, and store them in it.

    Each layer's sensitivity is measured along dense clips: how far replay in it alone moves the predictions. The ratio
    is dealt to the layers by it and in other ways, one threshold for all among them, and the best is kept. Afterwards
    `fastcar generate` replays by it; limits on age, refreshes and windows tuned with are to be given again.
    """
    if bundle.is_file():
        raise UsageError(bundle, "an archive", "a bundle folder, to be written to", "Unpack it.")
    opened = Bundle.open(bundle)
    frames = check_frames(opened, options["frames"])
    attention = attention_of(options, opened.manifest.frame_layout)
    request = replace(_request(opened, frames, options), attention=attention)
    if not options["dry_run"]:
        check_output_folder(bundle)
    settings = FollowSettings(bundle, frames, opened.manifest.sampling, attention)
    with Followers(settings, options["processes"]) as followers, progress() as advance:
        tuned = tune(opened.manifest.config.layers, followers, request, advance)
    if not options["dry_run"]:
        store_thresholds(opened, tuned, request)
    emit({"bundle": str(bundle), "stored": not options["dry_run"], **tuned.record(request)}, as_json, _show)


def _request(bundle: Bundle, frames: int, options: dict[str, Any]) -> Request:
    """UsageError for goals that contradict each other or cannot be, before any work."""
    goals = [name for name in ("replay_ratio", *TARGETS) if options[name] is not None]
    if len(goals) != 1:
        every = ", ".join("--" + name.replace("_", "-") for name in ("replay_ratio", *TARGETS))
        raise UsageError(every, f"{len(goals)} of them", "exactly one", "Say what to tune for.")
    replay = ReplaySettings((), options["policy"], options["max_age"], options["refresh"])
    wanted = "--" + goals[0].replace("_", "-")
    check_ratio(options["replay_ratio"] or 0.0, frames, replay.max_age, replay.refresh, wanted)
    if options["clips"] < 1:
        raise UsageError("--clips", str(options["clips"]), "at least 1", "Ask for more.")
    check_seed(options["seed"])
    if options["seed"] + 2 * options["clips"] > 1 << 64:  # held-out clips have the seeds after the others'
        found = f"{options['seed']}, with --clips {options['clips']}"
        raise UsageError("--seed", found, f"at most 2^64 - {2 * options['clips']}", "Choose a smaller seed.")
    target = None
    if goals[0] in TARGETS:
        field, low, high, expected = TARGETS[goals[0]]
        if not low < options[goals[0]] < high:
            raise UsageError(wanted, str(options[goals[0]]), expected, "Give another value.")
        target = Target(field, options[goals[0]])
        if field == "ssim":
            _check_pictures(bundle)
    calibration, held_out = _scenes(bundle, options)
    return Request(calibration, held_out, replay, options["replay_ratio"], target, not options["uniform"])


def _check_pictures(bundle: Bundle) -> None:
    """UsageError for pictures smaller than the window of SSIM, which is no number then."""
    layout, depth = bundle.manifest.frame_layout, bundle.manifest.depth
    codes = np.zeros((1, *layout.grid, *([depth.codes_per_position] if depth else [])), np.int32)
    height, width = FrameDecoder(bundle, threads=1)(codes).shape[1:3]
    if min(height, width) < WINDOW:
        found, expected = f"pictures of {width} x {height}", f"{WINDOW} x {WINDOW} or larger, the window of SSIM"
        raise UsageError("--min-ssim", found, expected, "Tune for --min-psnr.")


def _scenes(bundle: Bundle, options: dict[str, Any]) -> tuple[tuple[Scene, ...], tuple[Scene, ...]]:
    """No clip is in both: the prompts differ, or where the model knows one only, the seeds do."""
    known = bundle.prompts.known
    parts = []
    for option, own in (("--prompts", known[0::2]), ("--held-out", known[1::2] or known)):
        path = options[option[2:].replace("-", "_")]
        prompts = own if path is None else prompt_lines(option, path)
        if not prompts:
            raise UsageError(
                option, "not given", "a file of prompts, since the model names none", f"Add {option} FILE."
            )
        check_prompts([bundle], prompts, option)
        parts.append(prompts)
    first, clips = options["seed"], options["clips"]
    return tuple(
        tuple(Scene(prompts[i % len(prompts)], first + part * clips + i) for i in range(clips))
        for part, prompts in enumerate(parts)
    )


def _show(result: dict[str, Any]) -> None:
    header = ("candidate", "ratio", "nats a code", "shares of the layers")
    rows = [
        (
            name + (" *" if name == result["chosen"] else ""),
            f"{100 * one['ratio']:.1f} %",
            f"{one['divergence']:.4g}",
            " ".join(f"{share:.2f}" for share in one["shares"]),
        )
        for name, one in result["candidates"].items()
    ]
    table(f"{result['bundle']}: on the calibration clips (* chosen)", rows, header)
    names = {"ratio": "replay ratio, of eligible", "divergence": "divergence, nats a code", "psnr": "PSNR, dB"}
    names |= {"ssim": "SSIM", "agreement": "codes equal to dense"}
    held_out = result["held_out"]
    ways = ("uniform", "chosen")
    rows = [(text, *(_value(name, held_out[way][name]) for way in ways)) for name, text in names.items()]
    table("on held-out clips, against dense", rows, ("", "uniform threshold", "chosen"))
    chosen = result["candidates"][result["chosen"]]["thresholds"]
    click.echo(f"thresholds: {threshold_text(tuple(chosen))}")
    replay = ReplaySettings((), result["policy"], result["max_age"], result["refresh"])
    if words := setting_words(replay, AttentionSettings(**result["attention"])):
        click.echo(f"they are for: fastcar generate {words}")
    click.echo(f"stored in {result['bundle']}" if result["stored"] else "not stored")


def _value(name: str, value: float) -> str:
    if math.isnan(value):  # SSIM of pictures that are smaller than its window
        return "-"
    return f"{100 * value:.1f} %" if name in ("ratio", "agreement") else f"{value:.4g}"
