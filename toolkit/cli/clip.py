"""Running clips and writing what they leave: shared by ``generate`` and ``demo``."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from contextlib import nullcontext
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from ..backends.protocol import Backend
from ..board.power import EnergyRecord, PowerMeter, open_power_sources
from ..bundle.bundle import Bundle
from ..config import FrameLayout
from ..generation.calibrate import PROMISED
from ..generation.record import Generation
from ..generation.run import generate
from ..output import check_output_folder, replacing
from ..report import ReportFacts, RunView, replay_map_picture, summary, write_report
from ..settings import FULL_ATTENTION, AttentionSettings, ReplaySettings, SamplingSettings
from ..video import write_contact_sheet, write_gif, write_mp4
from ..video.decode import FollowingDecoder, FrameDecoder
from .console import Advance, plain

__all__ = [
    "check_clip_folder",
    "context_notice",
    "facts_of",
    "generate_clip",
    "machine",
    "ratio_notice",
    "sampling_of",
    "versions",
    "view_of",
    "write_clip",
]

SHOWN_HEIGHT = 256  # small pictures are enlarged to about this many pixels
BYTES_PER_FRAME = 1 << 20  # far above what any of the files needs a frame


def check_clip_folder(out: Path, frames: int, clips: int) -> None:
    """OutputError, before any work, if the files of a run cannot be written to ``out``."""
    check_output_folder(out, bytes_needed=frames * clips * BYTES_PER_FRAME)


def generate_clip(
    bundle: Bundle,
    prompts: Sequence[str],
    replay: ReplaySettings,
    seed: int,
    advance: Advance,
    *,
    label: str = "generating",
    frames: int,
    sampling: SamplingSettings,
    backend: Backend,
    attention: AttentionSettings = FULL_ATTENTION,
) -> RunView:
    """Generate and decode, beside each other where a device generates; ``label`` names the progress bar.

    Energy is measured where a board has a sensor for it.
    """
    advance(label, 0, frames)
    decoder = FollowingDecoder(bundle) if getattr(backend, "leaves_processor_free", False) else None
    sources = open_power_sources()
    meter = PowerMeter(sources) if sources else None

    def on_frame(frame: int, codes: np.ndarray) -> None:
        if meter:
            meter.mark()
        if decoder:
            decoder.add(codes)
        advance(label, frame + 1, frames)

    with meter or nullcontext():
        run = generate(
            bundle,
            prompts,
            frames=frames,
            seed=seed,
            sampling=sampling,
            replay=replay,
            attention=attention,
            backend=backend,
            on_frame=on_frame,
        )
    return view_of(bundle, run, decoder.finish() if decoder else None, meter.record() if meter else None)


def view_of(
    bundle: Bundle, run: Generation, frames: np.ndarray | None = None, energy: EnergyRecord | None = None
) -> RunView:
    """The run with its pictures, decoded here as far as ``frames`` are not all of them."""
    if frames is None or frames.shape[1] != run.codes.shape[1]:
        decode = FrameDecoder(bundle)
        frames = np.stack([decode(codes.reshape(-1, *run.grid, *codes.shape[2:])) for codes in run.codes])
    return RunView(run, frames, energy)


def sampling_of(bundle: Bundle, options: dict[str, Any]) -> SamplingSettings:
    """The bundle's sampling with what the options say instead."""
    names = ("temperature", "top_k", "top_p", "guidance")
    given = {name: options[name] for name in names if options.get(name) is not None}
    return SamplingSettings(**{**vars(bundle.manifest.sampling), **given})


def facts_of(
    bundle: Bundle, backend: Backend, seed: int, sampling: SamplingSettings, replay: ReplaySettings, command: str
) -> ReportFacts:
    manifest = bundle.manifest
    return ReportFacts(
        model=manifest.name,
        recipe=str(manifest.recipe.get("name")),
        backend=backend.name,
        machine=machine(),
        seed=seed,
        device=getattr(backend, "facts", None),
        frames_per_second=manifest.frame_rate,
        sampling=sampling,
        replay=replay,
        versions=versions(),
        command=command,
        criterion=manifest.criterion,
    )


def ratio_notice(wanted: float, run: RunView, held: bool = False) -> str | None:
    """A line for the user if the run replayed another share of the eligible evaluations than asked for; ``held``: in
    each frame, by thresholds that the scores of the frame before tell."""
    achieved = run.generation.eligible_replay_ratio
    if abs(achieved - wanted) <= PROMISED:
        return None
    moving = "the thresholds move from the third frame on: more frames, or a nearer --threshold"
    fix = moving if held else "try --threshold"
    return f"note: asked for a replay ratio of {wanted:g}, this run has {achieved:.2f} of the eligible; {fix}"


def context_notice(layout: FrameLayout, frames: int, attention: AttentionSettings) -> str | None:
    """A line for the user if positions see others from further away than any did in training."""
    longest, window = layout.trained_positions, attention.window
    farthest = max(window or longest, attention.columns * layout.tokens_per_frame)
    if frames <= layout.frames or (farthest < longest and not attention.sinks):
        return None
    return (
        f"note: positions beyond the {layout.frames} trained frames are unreliable without --attention-window below "
        f"{longest}, and with sinks: they see others at distances never seen in training"
    )


def write_clip(out: Path, run: RunView, dense: RunView | None, facts: ReportFacts) -> dict[str, Any]:
    """Videos, contact sheets, the record of every decision, ``result.json``; with ``dense`` the report and its picture.

    Each file is complete or absent. What an earlier run left in ``out`` is removed first, so that all files there are
    of one run. Returns what ``result.json`` holds.
    """
    _remove_earlier(out)
    files = [
        file for clip in range(run.clips) for file in _write_videos(out, run.frames[clip], facts, _suffix(run, clip))
    ]
    files.append(_write_record(out / "run.safetensors", run))
    if dense is not None:
        files.append(write_report(out / "report.html", run, dense, facts))
        files.append(replay_map_picture(out / "replay-map.png", run, dense))
    generation = run.generation
    result = {
        "prompts": list(generation.prompts),
        "grid": list(generation.grid),
        "seed": facts.seed,
        "model": facts.model,
        "recipe": facts.recipe,
        "backend": facts.backend,
        "criterion": facts.criterion,
        "sampling": vars(facts.sampling),
        "thresholds": list(run.thresholds),
        "policy": facts.replay.policy,
        "max_age": facts.replay.max_age,
        "refresh": facts.replay.refresh,
        "hold": facts.replay.hold,
        "threshold_offsets": None if generation.offsets is None else generation.offsets.tolist(),
        "attention": vars(generation.attention),
        "interrupted": generation.interrupted,
        "fault": str(generation.fault) if generation.fault else None,
        "device": facts.device,
        "energy": run.energy.summary() if run.energy else None,
        "summary": summary(run, dense),
        "files": [str(file) for file in files] + [str(out / "result.json")],
    }
    with replacing(out / "result.json") as partial:
        partial.write_text(json.dumps(plain(result), indent=1) + "\n")
    return result


def _remove_earlier(out: Path) -> None:
    """The files named by an earlier ``result.json``, as far as they lie in this folder."""
    try:
        named = json.loads((out / "result.json").read_text("utf-8"))["files"]
        earlier = [out / Path(name).name for name in named]
    except (OSError, ValueError, KeyError, TypeError):
        return
    for file in earlier:
        if file.is_file():
            file.unlink()


def _write_videos(out: Path, frames: np.ndarray, facts: ReportFacts, suffix: str) -> list[Path]:
    upscale = max(1, SHOWN_HEIGHT // frames.shape[1])
    rate = facts.frames_per_second
    return [
        write_mp4(out / f"video{suffix}.mp4", frames, rate, upscale).path,
        write_gif(out / f"video{suffix}.gif", frames, rate, upscale).path,
        write_contact_sheet(out / f"sheet{suffix}.png", frames).path,
    ]


def _write_record(path: Path, run: RunView) -> Path:
    """Codes, TAS and replay decisions with the axes of ``Generation``."""
    generation = run.generation
    arrays = {
        "codes": generation.codes,
        "tas": generation.tas,
        "replay": generation.replay,
        "seconds": generation.seconds,
    }
    with replacing(path) as partial:
        partial.write_bytes(save({name: np.ascontiguousarray(value) for name, value in arrays.items()}))
    return path


def _suffix(run: RunView, clip: int) -> str:
    return "" if run.clips == 1 else f"-{clip + 1}"


def machine() -> str:
    """Architecture, processor and system, for people."""
    return f"{platform.machine()}, {_processor()}, {platform.system()}"


def versions() -> dict[str, str]:
    return {name: _version(name) for name in ("fastcar-edge", "onnxruntime", "numpy")}


def _processor() -> str:
    """The processor's name where Linux tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        return platform.processor() or "unknown processor"
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith(("model name", "Model"))]
    cores = sum(line.startswith("processor") for line in lines)
    return f"{names[0] if names else platform.processor() or 'unknown processor'} ({cores} cores)"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
