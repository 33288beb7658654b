"""``fastcar plan``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from ...hls.resources import RESOURCES, budget, estimate_on, is_within, placement, total
from ...overlays.load import engine_text
from ..errors import OutputError, UsageError
from ..output import check_output_folder, replacing
from ..planner.clip import Replay
from ..planner.memory_fit import MIB, largest
from ..planner.plan import ModePlan, Plan, Request, plan_model
from ..planner.roofline import roofline_svg
from ..planner.shapes import ModelShape, file_word, load_shape, shape_names
from ..program.memory import BEAT_BYTES
from ..settings import POLICIES
from .console import emit, examples, json_option, plain, progress, say, table
from .options import attention_of, attention_options
from .plan_published import show_published

__all__ = ["command"]

ROOFLINE, ENGINE, PLAN = FILES = ("roofline.svg", "engine.toml", "plan.json")


@click.command(
    "plan",
    epilog=examples(
        "fastcar plan llama-1.1b --board kv260 --recipe w4a8 --rows 2 --replay-ratio 0.87 --policy all",
        "fastcar plan car-kv260 --board kv260 --replay-ratio 0.8 --frames 8",
        "fastcar plan llama-1.1b --board zcu104 --search --out plan",
        "fastcar plan --published",
    ),
)
@click.argument("model", required=False)
@click.option("--board", help="Name of a board, or the path of its .toml file.")
@click.option("--recipe", help="w8a8, w4a8 or w4a8-nearest  [default: the bundle's, or w4a8]")
@click.option("--rows", type=int, help="Of a step: clips, twice as many with guidance  [default: one clip]")
@click.option("--replay-ratio", type=float, help="Of the evaluations of the frames after the first, 0 to 1.")
@click.option("--policy", default="independent", show_default=True, help="How rows decide: independent, mean, all.")
@click.option("--frames", type=int, help="Of a clip  [default: the model's]")
@attention_options
@click.option("--engine", help="Name or .toml file  [default: the fastest that takes the model, else one sized]")
@click.option("--search", is_flag=True, help="Size an engine for the model, whatever comes with the project.")
@click.option("--anyway", is_flag=True, help="Plan the time although memory or --engine do not fit.")
@click.option("--out", type=click.Path(path_type=Path), help="Folder of the files  [default: plan-MODEL-BOARD]")
@click.option("--published", is_flag=True, help="Instead: published designs and the paper's table, beside predictions.")
@json_option
def command(model: str | None, board: str | None, as_json: bool, published: bool, **options: Any) -> None:
    """Estimate MODEL on a board before anything is built: does it fit, how fast, what limits it.

    MODEL is a bundle, a checkpoint folder, a shape file, or one of the built-in shapes (car, llama-1.1b, vila-u-7b,
    ...). Writes roofline.svg, plan.json and engine.toml, which `export --board` and the overlay's build take.
    Everything is estimated: the schedule is counted as the C simulation counts it, its time follows from a cycle model.
    """
    if published:
        show_published(as_json)
        return
    if model is None or board is None:
        missing = "MODEL" if model is None else "--board"
        fix = f"Built-in shapes: {', '.join(shape_names())}."
        raise UsageError("plan", f"no {missing}", "a model and a board", fix)
    shape = _shape(model, options["frames"])
    request = Request(
        shape,
        board,
        options["recipe"] or shape.recipe or "w4a8",
        options["rows"],
        _replay(options),
        attention_of(options, shape.frame_layout),
        options["engine"],
        options["search"],
        options["anyway"],
    )
    out = options["out"] or Path(f"plan-{file_word(shape.name)}-{file_word(Path(board).stem.lower())}")
    _check_output(out)
    with progress() as advance:
        plan = plan_model(request, advance)
    result = result_of(plan)
    result["files"] = _write(out, plan, result)
    emit(result, as_json, _show)


def _check_output(out: Path) -> None:
    """OutputError, before anything is counted or written, if one of the files cannot be."""
    check_output_folder(out)
    for name in FILES:
        if (out / name).is_dir():
            fix = "Choose another output folder."
            raise OutputError(out / name, "is a directory", "a file that can be written", fix)


def _shape(model: str, frames: int | None) -> ModelShape:
    shape = load_shape(model)
    if frames is None:
        return shape
    if frames < 1:
        raise UsageError("--frames", str(frames), "1 or more", "Give another number of frames.")
    return shape.model_copy(update={"frame_layout": shape.frame_layout.of_frames(frames)})


def _replay(options: dict[str, Any]) -> Replay | None:
    ratio, policy = options["replay_ratio"], options["policy"]
    if policy not in POLICIES:
        raise UsageError("--policy", policy, f"one of {', '.join(POLICIES)}", "Choose one of them.")
    if ratio is None:
        return None
    if not 0 <= ratio <= 1:
        raise UsageError("--replay-ratio", str(ratio), "0 to 1", "Give a share, such as 0.8.")
    return Replay(ratio, policy)


def result_of(plan: Plan) -> dict[str, Any]:
    config, request, layout = plan.engine.config, plan.request, plan.request.shape.frame_layout
    used, usable = total(estimate_on(config, plan.board)), budget(plan.board)
    most, _ = largest(plan.board)
    return {
        "estimated": True,
        "model": request.shape.name,
        "board": plan.board.name,
        "recipe": request.recipe,
        "rows": plan.rows.rows,
        "frames": layout.frames,
        "max_frames": layout.room,
        "tokens_per_frame": layout.tokens_per_frame,
        "replay_ratio": request.replay.ratio if request.replay else None,
        "policy": request.replay.policy if request.replay else None,
        "engine": {**config.model_dump(), "build_id": f"{config.build_id:08x}", "origin": plan.origin},
        "bound_memories": placement(config, plan.board),
        "sustained_gb_s": plan.memory.beats_per_cycle * BEAT_BYTES * config.clock_mhz / 1e3,
        "fits": plan.need.total <= most and is_within(config, plan.board),
        "memory_bytes": {**dict(plan.need.parts()), "total": plan.need.total, "limit": most},
        "first": plan.step,
        "resources": {name: {"used": getattr(used, name), "budget": getattr(usable, name)} for name in RESOURCES},
        "modes": {name: _mode(mode) for name, mode in plan.modes.items()},
    }


def _mode(mode: ModePlan) -> dict[str, Any]:
    return {
        "bytes_per_step": mode.counts.bytes_per_step,
        "seconds_per_step": mode.seconds_per_step,
        "seconds_per_frame": mode.seconds_per_frame,
        "seconds_per_clip": mode.seconds_per_clip,
        "watts": {"chip": mode.energy.power.chip, "memory": mode.energy.power.memory},
        "joules_per_frame": mode.joules_per_frame,
        "limit": mode.limit.name,
        "over_memory": mode.limit.over_memory,
        "classes": {
            name: {
                "bytes": BEAT_BYTES * operation.beats,
                "seconds": operation.cycles / mode.clock_mhz / 1e6,
            }
            for name, operation in mode.counts.step.items()
        },
    }


def _write(out: Path, plan: Plan, result: dict[str, Any]) -> list[str]:
    texts = {
        ROOFLINE: roofline_svg(plan),
        ENGINE: engine_text(plan.engine),
        PLAN: json.dumps(plain(result), indent=1) + "\n",
    }
    for name, text in texts.items():
        with replacing(out / name) as partial:
            partial.write_text(text, "utf-8")
    return [str(out / name) for name in texts]


def _show(result: dict[str, Any]) -> None:
    engine = result["engine"]
    replay = "none asked for"
    if result["replay_ratio"] is not None:
        replay = f"{result['replay_ratio']:g} of the evaluations after the first frame, policy {result['policy']}"
    length = f"{result['frames']} frames"
    if result["max_frames"] > result["frames"]:
        length += f" (room for {result['max_frames']})"
    facts = [
        ("clip", f"{length} of {result['tokens_per_frame']} positions, {result['rows']} rows a step"),
        ("recipe, replay", f"{result['recipe']}; {replay}"),
        ("engine", engine["name"]),
        ("its origin", engine["origin"]),
        ("its size", f"{engine['groups']} groups a read port, vector {engine['vector']}, {engine['clock_mhz']:g} MHz"),
        ("memory", f"{result['sustained_gb_s']:.1f} GB/s sustained"),
    ]
    if result["bound_memories"]:
        bound = ", ".join(f"{name.rstrip('_')} in {kind}" for name, kind in result["bound_memories"].items())
        facts.append(("bound memories", bound))
    table(f"{result['model']} on {result['board']}, everything estimated", facts)
    memory = dict(result["memory_bytes"])
    limit, whole = memory.pop("limit"), memory.pop("total")
    rows = [(f"{name}, MiB", f"{size / MIB:,.1f}", "") for name, size in memory.items()]
    rows.append(("contiguous memory, MiB", f"{whole / MIB:,.1f}", f"{limit / MIB:,.0f}"))
    rows += [
        (name.upper(), f"{one['used']:,.12g}", f"{one['budget']:,.12g}") for name, one in result["resources"].items()
    ]
    table("Fits" if result["fits"] else "Does not fit", rows, ("", "needs", "of"))
    if not result["fits"]:
        say("it does NOT fit: what follows is only how long it would take")
    modes = result["modes"]
    dense = modes["dense"]["seconds_per_step"]
    table("A step, its frame, the clip", [_mode_row(name, one, dense) for name, one in modes.items()], MODE_TITLES)
    say("MB: moved a step; x: speed-up over dense; W: chip and memory")
    for name, one in modes.items():
        say(f"{name}: limited by {one['limit']}; {one['over_memory']:.3g} x the time that its bytes take")
    shown = [name for name in ("dense", "replay+drs") if name in modes]
    classes = list(modes["dense"]["classes"])
    titles = ("", *(unit for _ in shown for unit in ("MB", "ms", "%")))
    rows = [_class_row(name, modes, shown) for name in classes]
    table(f"Where a step goes: {', then '.join(shown)}", rows, titles)
    if len(modes) > 1:
        say("+ DRS: replay with Dynamic Resource Scheduling")
    if result["first"]:
        say(f"first: {result['first']}")
    for file in result["files"]:
        say(f"wrote {file}")


MODE_NAMES = {"dense": "dense", "replay": "replay", "replay+drs": "+ DRS"}
MODE_TITLES = ("", "MB", "ms", "steps/s", "s/frame", "s/clip", "x", "W", "J/frame")


def _short(value: float) -> str:
    """Three digits at least, none after a comma that four before it make needless."""
    if value == 0 or value >= 1000:
        return f"{value:,.0f}"
    if value >= 100:
        return f"{value:.1f}"
    return f"{value:.2f}" if value >= 1 else f"{value:.3f}" if value >= 0.1 else f"{value:.3g}"


def _mode_row(name: str, mode: dict[str, Any], dense: float) -> tuple[str, ...]:
    seconds = mode["seconds_per_step"]
    return (
        MODE_NAMES[name],
        _short(mode["bytes_per_step"] / 1e6),
        _short(seconds * 1e3),
        _short(1 / seconds),
        _short(mode["seconds_per_frame"]),
        _short(mode["seconds_per_clip"]),
        f"{dense / seconds:.2f}",
        f"{sum(mode['watts'].values()):.1f}",
        _short(mode["joules_per_frame"]),
    )


def _class_row(name: str, modes: dict[str, Any], shown: list[str]) -> tuple[str, ...]:
    row = [name]
    for mode in shown:
        one = modes[mode]["classes"].get(name, {"bytes": 0.0, "seconds": 0.0})
        share = one["seconds"] / modes[mode]["seconds_per_step"]
        row += [_short(one["bytes"] / 1e6), _short(one["seconds"] * 1e3), f"{share:.1%}"]
    return tuple(row)
