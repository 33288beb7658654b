"""``fastcar csim``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ...boards import load_board
from ...hls.library import EngineLibrary
from ...hls.modes import ModeCounts, count_modes
from ...overlays import Engine, load_engine
from ..backends.csim import CSimBackend
from ..backends.registry import open_backend
from ..bundle.bundle import Bundle
from ..generation.agreement import Recorder, first_difference
from ..generation.run import check_frames, check_seed, generate
from ..program.packed import Packed
from .clip import check_clip_folder, context_notice, facts_of, sampling_of, view_of, write_clip
from .console import command_line, emit, examples, json_option, progress, say, table
from .options import attention_of, clip_options, replay_of, tuned_notice

__all__ = ["command"]


@click.command(
    "csim",
    epilog=examples(
        'fastcar csim car-w4a8 --prompt "left turn" --frames 4 --threshold -0.5 --check',
        "fastcar csim car-kv260 --prompt braking --threshold -0.5 --policy all --json",
    ),
)
@click.argument("bundle", type=click.Path(path_type=Path))
@clip_options
@click.option("--board", help="Overlay to simulate  [default: the bundle's, or kv260]")
@click.option("--no-drs", is_flag=True, help="Without resource scheduling: fixed mapping, MLP weights always fetched.")
@click.option(
    "--check", is_flag=True, help="Compare every code, TAS, decision and logit with onnxruntime; exit 1 if not equal."
)
@click.option("--out", type=click.Path(path_type=Path), help="Folder for the video and its record.")
@json_option
def command(bundle: Path, prompts: tuple[str, ...], out: Path | None, as_json: bool, **options: Any) -> None:
    """Generate a clip from BUNDLE through the overlay's C++ and show its counters and estimated cycles.

    Counters are those of the hardware registers. Cycles come from a cycle model (fastcar/hls/sim/timing.h); nothing
    here was measured on a board.
    """
    opened = Bundle.open(bundle)
    opened.require_for_engine()
    frames, seed = check_frames(opened, options["frames"]), check_seed(options["seed"])
    sampling = sampling_of(opened, options)
    replay, attention = replay_of(opened, options), attention_of(options, opened.manifest.frame_layout)
    for prompt in prompts:
        opened.prompts.encode(prompt, opened.manifest.frame_layout.prompt_length)
    if out:
        check_clip_folder(out, frames, len(prompts))
    if notice := context_notice(opened.manifest.frame_layout, frames, attention):
        say(notice)
    if notice := tuned_notice(opened.manifest, options, replay, attention):
        say(notice)
    engine = _engine(opened, options["board"])
    with progress() as advance:
        advance("compiling the engine", 0, 1)
        backend = _backend(opened, engine, drs=not options["no_drs"])
        advance("compiling the engine", 1, 1)
        settings = {"frames": frames, "seed": seed, "sampling": sampling, "replay": replay, "attention": attention}
        runs = [(backend, "C simulation")]
        if options["check"]:
            runs.append((open_backend("onnxruntime", opened), "onnxruntime"))
        recorders = [Recorder(one) for one, _ in runs]
        generations = []
        for recorder, (_, label) in zip(recorders, runs, strict=True):
            report = lambda frame, codes, label=label: advance(label, frame + 1, frames)
            advance(label, 0, frames)
            generations.append(generate(opened, prompts, backend=recorder, on_frame=report, **settings))
            if generations[-1].interrupted:
                break
        interrupted = generations[-1].interrupted
        checked = options["check"] and not interrupted
        difference = first_difference(*recorders) if checked else None
    modes = _modes(backend, engine)
    result = _result(opened, engine, backend, generations[0], modes, options["no_drs"])
    result |= {"prompts": list(prompts), "seed": seed, "threshold": options["threshold"], "interrupted": interrupted}
    if checked:
        result["equal_to_onnxruntime"] = difference is None
        result["first_difference"] = None if difference is None else vars(difference)
    if out and difference is None:
        again = command_line("csim", str(bundle), prompt=prompts, **options, out=out)
        facts = facts_of(opened, backend, seed, sampling, replay, again)
        result["files"] = write_clip(out, view_of(opened, generations[0]), None, facts)["files"]
    emit(result, as_json, _show)
    if interrupted:
        say(f"interrupted: kept the {generations[0].codes.shape[1]} finished frames")
        raise click.exceptions.Exit(130)
    if difference is not None:
        say(f"not equal to onnxruntime: {difference}")
        raise click.exceptions.Exit(1)


def _engine(bundle: Bundle, name: str | None) -> Engine:
    """The one asked for, or the one the bundle is packed for."""
    manifest = bundle.manifest
    if name or manifest.engine is None:
        return load_engine(name or "kv260")
    return Engine(board=manifest.board, config=manifest.engine)


def _backend(bundle: Bundle, engine: Engine, drs: bool) -> CSimBackend:
    """Over the bundle's own packing if it is for this engine, else packed now."""
    manifest = bundle.manifest
    engine.config.check(manifest.config, manifest.frame_layout, manifest.depth)
    packed = bundle.packed()
    if packed is None or packed.build_id != engine.config.build_id:
        packed = _pack(bundle, engine)
    library = EngineLibrary(engine.config)
    return CSimBackend(library, packed, manifest.config, manifest.frame_layout, drs, manifest.depth)


def _pack(bundle: Bundle, engine: Engine) -> Packed:
    from ...export.overlay.compile import pack_model

    return pack_model(bundle.model()[0], engine.config)


def _modes(backend: CSimBackend, engine: Engine) -> dict[str, ModeCounts]:
    """Of the frames; the prompt is left out."""
    board = load_board(engine.board)
    starts = [(start.control, start.replays) for start in backend.starts if start.decodes]
    rate = board.sustained_beats_per_cycle(engine.config.clock_mhz)
    return count_modes(backend.library, backend.packed.program, starts, rate)


def _result(
    bundle: Bundle, engine: Engine, backend: CSimBackend, generation: Any, modes: dict[str, ModeCounts], fixed: bool
) -> dict[str, Any]:
    clock = engine.config.clock_mhz
    return {
        "bundle": str(bundle.path),
        "engine": engine.config.name,
        "board": engine.board,
        "build_id": f"{engine.config.build_id:08x}",
        "drs": not fixed,
        "frames": generation.codes.shape[1],
        "rows": generation.rows,
        "replay_ratio": generation.replay_ratio,
        "eligible_replay_ratio": generation.eligible_replay_ratio,
        "simulated_steps_per_second": generation.steps_per_second,
        "counters": backend.counters(),
        "estimated": {
            name: {
                "cycles_per_step": mode.cycles_per_step,
                "milliseconds_per_step": mode.milliseconds_per_step(clock),
                "bytes_per_step": mode.bytes_per_step,
                "memory_use": mode.memory_use,
                "group_utilisation": mode.group_utilisation,
                "passes_skipped_per_step": mode.counters["passes_skipped"] / mode.steps,
                "stall_cycles_per_step": mode.counters["stalls"] / mode.steps,
            }
            for name, mode in modes.items()
        },
    }


def _show(result: dict[str, Any]) -> None:
    eligible = result["eligible_replay_ratio"]
    of_eligible = "none eligible" if eligible != eligible else f"{100 * eligible:.1f} % of eligible"
    facts = [
        ("engine", f"{result['engine']}, build {result['build_id']}"),
        ("scheduling", "on" if result["drs"] else "off: fixed mapping"),
        ("prompts", ", ".join(result["prompts"])),
        ("frames, rows, seed", f"{result['frames']}, {result['rows']}, {result['seed']}"),
        ("replay ratio", f"{100 * result['replay_ratio']:.1f} % ({of_eligible})"),
        ("C simulation", f"{result['simulated_steps_per_second']:.1f} steps/s"),
    ]
    if "equal_to_onnxruntime" in result:
        facts.append(("equal to onnxruntime", "yes, bit for bit" if result["equal_to_onnxruntime"] else "NO"))
    table(f"C simulation of {result['bundle']}", facts)
    counters = {name: value for name, value in result["counters"].items() if name not in ("steps", "replayed")}
    table("Counters, of the prompt's steps too", [(name, f"{value:,}") for name, value in counters.items()])
    rows = [
        (
            name,
            f"{mode['bytes_per_step'] / 1e6:.3f}",
            f"{mode['cycles_per_step']:,.0f}",
            f"{mode['milliseconds_per_step']:.3f}",
            f"{100 * mode['memory_use']:.1f} %",
            f"{100 * mode['group_utilisation']:.1f} %",
            f"{mode['passes_skipped_per_step']:.2f}",
        )
        for name, mode in result["estimated"].items()
    ]
    titles = ("mode", "MB", "cycles", "ms", "memory", "groups", "skipped")
    table(f"A step, estimated by the cycle model for {result['board']}, not measured", rows, titles)
    say(
        "replay+drs is with Dynamic Resource Scheduling; memory: of the beats it sustains; groups: of their clocks in "
        "the loops that use them; skipped: MLPs a step"
    )
    if result["replay_ratio"] == 0:
        say("no evaluation was replayed: without --threshold the modes are the same")
    for file in result.get("files", ()):
        say(f"wrote {file}")
