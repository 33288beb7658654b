"""``fastcar generate``."""

from __future__ import annotations

from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from ..backends.engine import rows_of
from ..backends.protocol import Backend
from ..backends.registry import open_backend
from ..bundle.bundle import Bundle
from ..errors import DeviceError, UsageError
from ..generation.calibrate import check_ratio, thresholds_for_ratio
from ..generation.run import check_frames, check_seed
from ..planner.frame_time import shares_for_time
from ..report import RunView, summary_table
from ..settings import ReplaySettings
from .clip import check_clip_folder, context_notice, facts_of, generate_clip, ratio_notice, sampling_of, write_clip
from .console import Advance, command_line, emit, examples, json_option, progress, say, table
from .options import attention_of, clip_options, device_of, device_options, hold_options, replay_of, tuned_notice

__all__ = ["command"]


@click.command(
    "generate",
    epilog=examples(
        'fastcar generate car-w8a8 --prompt "left turn" --frames 16 --seed 1 --out clip',
        'fastcar generate car-w8a8 --prompt "left turn" --replay-ratio 0.8 --out clip',
        'fastcar generate car-w8a8 --prompt "left turn" --hold-replay-ratio 0.5 --refresh 8 --out clip',
        "fastcar generate car-w8a8 --prompt braking --threshold -0.5 --compare --out clip",
        "fastcar generate car-w8a8 --prompt straight --prompt braking --dense --json --out clips",
    ),
)
@click.argument("bundle", type=click.Path(path_type=Path))
@clip_options
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Folder for the video and its record.")
@click.option("--dense", is_flag=True, help="Compute every MLP.")
@click.option("--replay-ratio", type=float, help="Find the threshold for this share of the eligible MLP evaluations.")
@hold_options
@click.option("--temperature", type=float, help="0 is greedy  [default: the bundle's]")
@click.option("--top-k", type=int, help="Codes to choose from, 0 for all  [default: the bundle's]")
@click.option("--top-p", type=float, help="Share of the probability to choose from  [default: the bundle's]")
@click.option(
    "--backend",
    default="onnxruntime",
    show_default=True,
    help="onnxruntime; reference (NumPy, slow); for a bundle packed with --board: csim (the overlay's C++), pynq (the "
    "overlay).",
)
@device_options
@click.option("--verify-memory", is_flag=True, help="Compare the weights in the device's memory again afterwards.")
@click.option(
    "--threads", type=click.IntRange(1, 256), help="Processor threads; they do not change a bit of the result."
)
@click.option("--compare", is_flag=True, help="Also run dense and write report.html with both.")
@json_option
def command(bundle: Path, prompts: tuple[str, ...], out: Path, as_json: bool, **options: Any) -> None:
    """Generate a video from BUNDLE (a folder or an archive) into the folder given by --out.

    Ctrl-C keeps the finished frames, writes them, and exits with 130; a device that fails, with 3.
    """
    _check_exclusive(options, ("dense", "threshold", "replay_ratio"))
    _check_exclusive(options, ("dense", "replay_ratio", "hold_replay_ratio", "hold_frame_time"))
    if options["verify_memory"] and options["backend"] != "pynq":
        raise UsageError("--verify-memory", f"--backend {options['backend']}", "--backend pynq", "Drop it.")
    if options["compare"] and len(prompts) > 1:
        raise UsageError("--compare", f"{len(prompts)} prompts", "one", "Compare one clip at a time.")
    opened = Bundle.open(bundle)
    sampling = sampling_of(opened, options)
    frames = check_frames(opened, options["frames"])
    check_seed(options["seed"])
    for prompt in prompts:
        opened.prompts.encode(prompt, opened.manifest.frame_layout.prompt_length)
    replay = _replay(opened, options)
    attention = attention_of(options, opened.manifest.frame_layout)
    if options["replay_ratio"] is not None:
        check_ratio(options["replay_ratio"], frames, options["max_age"], options["refresh"])
    replay = replace(replay, hold=_held(opened, options, frames, len(prompts) * (2 if sampling.guided else 1)))
    check_clip_folder(out, frames, len(prompts))
    if notice := context_notice(opened.manifest.frame_layout, frames, attention):
        say(notice)
    if notice := tuned_notice(opened.manifest, options, replay, attention):
        say(notice)
    if options["backend"] in ("csim", "pynq"):  # before an engine is compiled or loaded
        opened.require_packed()
        rows_of(opened.manifest.engine, len(prompts), sampling.guided)
    device = device_of(options, len(prompts), sampling.guided)
    backend = open_backend(options["backend"], opened, options["threads"], device=device)
    common = {"frames": frames, "sampling": sampling, "backend": backend, "attention": attention}
    with closing(backend) if hasattr(backend, "close") else nullcontext(), progress() as advance:
        calibration = None
        if options["replay_ratio"] is not None:
            replay, calibration = _for_ratio(
                opened, prompts, options["replay_ratio"], replay, options["seed"], common, advance
            )
        clip = generate_clip(opened, prompts, replay, options["seed"], advance, **common)
        dense, fault = None, clip.generation.fault
        if options["compare"] and clip.generation.complete:
            dense, fault = _dense(opened, prompts, options["seed"], advance, common)
        if options["verify_memory"] and fault is None:
            fault = _memory_fault(backend)
        again = command_line("generate", str(bundle), prompt=prompts, **options, out=out)
        facts = facts_of(opened, backend, options["seed"], sampling, replay, again)
        result = write_clip(out, clip, dense, facts)
    result["calibration"] = calibration
    interrupted = clip.generation.interrupted
    if not clip.generation.complete:
        say(f"{'interrupted' if interrupted else 'stopped'}: kept the {clip.generation.codes.shape[1]} finished frames")
    elif notice := _ratio_notice(clip, options):
        say(notice)
    if options["compare"] and dense is None:
        interrupted = interrupted or fault is None
        say(f"{'stopped' if fault else 'interrupted'} before the dense run was complete: no report.html")
    emit(result, as_json, _show)
    if fault:
        raise fault
    if interrupted:
        raise click.exceptions.Exit(130)


def _check_exclusive(options: dict[str, Any], names: tuple[str, ...]) -> None:
    given = [name for name in names if options[name] is not None and options[name] is not False]
    if len(given) > 1:
        every = ", ".join("--" + name.replace("_", "-") for name in names)
        raise UsageError(every, "more than one", "one of them", "Drop the others.")


def _held(bundle: Bundle, options: dict[str, Any], frames: int, rows: int) -> float | tuple[float, ...] | None:
    """The share of the evaluations to hold, for all frames or one a frame."""
    ratio, seconds = options["hold_replay_ratio"], options["hold_frame_time"]
    if ratio is not None:
        check_ratio(ratio, frames, options["max_age"], options["refresh"], "--hold-replay-ratio")
    if seconds is None:
        return ratio
    attention = attention_of(options, bundle.manifest.frame_layout)
    shares = shares_for_time(bundle, seconds, frames, rows, attention)
    if missed := shares.count(1.0):
        say(f"note: {missed} of {frames} frames take {seconds:g} s or more with every MLP replayed (estimated)")
    return shares


def _dense(
    bundle: Bundle, prompts: tuple[str, ...], seed: int, advance: Advance, common: dict[str, Any]
) -> tuple[RunView | None, DeviceError | None]:
    """The run to compare with; None if it was interrupted or the device failed: what is finished is to be written."""
    try:
        dense = generate_clip(bundle, prompts, ReplaySettings(), seed, advance, label="dense", **common)
    except KeyboardInterrupt:
        return None, None
    except DeviceError as error:
        return None, error
    return (dense if dense.generation.complete else None), dense.generation.fault


def _ratio_notice(clip: RunView, options: dict[str, Any]) -> str | None:
    held = options["hold_replay_ratio"]
    wanted = options["replay_ratio"] if held is None else held
    return None if wanted is None else ratio_notice(wanted, clip, held is not None)


def _memory_fault(backend: Backend) -> DeviceError | None:
    try:
        backend.verify_memory()
    except DeviceError as error:
        return error
    return None


def _replay(bundle: Bundle, options: dict[str, Any]) -> ReplaySettings:
    """The replay settings asked for; with a wanted ratio the thresholds are still to be found."""
    return ReplaySettings() if options["dense"] else replay_of(bundle, options)


def _for_ratio(
    bundle: Bundle,
    prompts: tuple[str, ...],
    ratio: float,
    replay: ReplaySettings,
    seed: int,
    common: dict[str, Any],
    advance: Advance,
) -> tuple[ReplaySettings, dict[str, Any]]:
    """The settings that give the ratio, and how near the last trials came."""
    found = thresholds_for_ratio(
        bundle,
        common["backend"],
        prompts,
        ratio,
        frames=common["frames"],
        seed=seed,
        sampling=common["sampling"],
        replay=replay,
        attention=common["attention"],
        on_trial=lambda done, total: advance("finding the threshold", done, total),
    )
    advance("finding the threshold", 1, 1)
    return replace(replay, thresholds=(found.threshold,) * bundle.manifest.config.layers), vars(found)


def _show(result: dict[str, Any]) -> None:
    table(f"{', '.join(result['prompts'])} (seed {result['seed']})", summary_table(result["summary"]))
    for file in result["files"]:
        click.echo(file)
