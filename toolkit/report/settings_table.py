"""The settings of a run as lines of text."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import groupby
from typing import Any

from ..settings import AttentionSettings, ReplaySettings, SamplingSettings
from .view import ReportFacts, RunView

__all__ = ["settings_table", "threshold_text"]


def settings_table(run: RunView, facts: ReportFacts) -> list[tuple[str, str]]:
    """(name, value) in reading order; what is not known has no line."""
    height, width = run.frames.shape[2:4]
    grid, places = run.generation.grid, run.generation.replay.shape[1]
    separators = places - grid[0] * grid[1]
    where = f"{grid[0]} x {grid[1]} places a frame" + (f" and {separators} of separators" if separators else "")
    lines = [
        ("model", facts.model),
        ("recipe", facts.recipe),
        ("back end", facts.backend),
        ("machine", facts.machine),
        ("device", _device_text(facts.device)),
        *(("prompt" if run.clips == 1 else f"prompt, clip {i}", text) for i, text in enumerate(run.generation.prompts)),
        ("video", f"{run.frame_count} frames of {height} x {width} pixels, {facts.frames_per_second:g} a second"),
        ("positions", f"{where}, {run.layers} layers, {run.generation.rows} rows a step"),
        ("thresholds", _thresholds(run, facts)),
        ("replay decided by", "" if facts.criterion == "tas" else f"{facts.criterion}, called TAS here"),
        *_replay_lines(facts.replay),
        ("attention", _attention_text(run.generation.attention)),
        *_sampling_lines(facts.sampling),
        ("seed", "" if facts.seed is None else str(facts.seed)),
        ("energy", run.energy.text() if run.energy else "not measured (no power sensor of a board)"),
        ("versions", ", ".join(f"{name} {version}" for name, version in facts.versions.items())),
    ]
    return [(name, value) for name, value in lines if value]


def threshold_text(thresholds: tuple[float | None, ...]) -> str:
    """One value when all layers share it, otherwise one a layer."""
    texts = ["never" if value is None else "always" if value == -math.inf else f"{value:.4g}" for value in thresholds]
    if len(set(texts)) == 1:
        return "none: no layer replays" if texts[0] == "never" else f"{texts[0]} in every layer"
    groups = [list(group) for _, group in groupby(enumerate(texts), key=lambda item: item[1])]
    return ", ".join(f"{_span(group[0][0], group[-1][0])}: {group[0][1]}" for group in groups)


def _thresholds(run: RunView, facts: ReportFacts) -> str:
    held = facts.replay is not None and facts.replay.hold is not None and not facts.replay.thresholds
    return "one for all layers, by the scores of the frame before" if held else threshold_text(run.thresholds)


def _device_text(device: Mapping[str, Any] | None) -> str:
    """The emulated device is named as one: its times are a simulation's."""
    if device is None:
        return ""
    kind = "emulated: times are those of the C simulation" if device["device"] == "emulated" else "board"
    share = f", host {100 * device['host_share']:.1f} % of a frame's time" if device.get("host_share") else ""
    clock = f"{device['clock_mhz']:g} MHz"
    if device["built_for_mhz"]:
        clock += f" (built for {device['built_for_mhz']:g})"
    overlay = f"{device['overlay']}, engine {device['engine']}, build {device['build_id']}"
    return f"{kind}; {overlay}, {clock}, pynq {device['pynq']}, waits by {device['waits_for']}{share}"


def _span(first: int, last: int) -> str:
    return f"layer {first}" if first == last else f"layers {first} to {last}"


def _replay_lines(settings: ReplaySettings | None) -> list[tuple[str, str]]:
    if settings is None:
        return []
    age = "" if settings.max_age is None else f", at most {settings.max_age} times in a row"
    refresh = "" if settings.refresh is None else f", every {settings.refresh} frames one computes everything"
    lines = [("replay policy", settings.policy + age + refresh)]
    if settings.hold is not None:
        shares = settings.hold[1:] if isinstance(settings.hold, tuple) else (settings.hold,)
        span = " to ".join(f"{share:.2f}" for share in dict.fromkeys((min(shares), max(shares))))
        lines.append(("held replay ratio", f"{span} of a frame's evaluations: the thresholds move between frames"))
    return lines


def _attention_text(settings: AttentionSettings) -> str:
    if settings.window is None:
        return "all positions before"
    parts = [f"the {settings.window} positions before"]
    if settings.columns:
        frames = "frame" if settings.columns == 1 else f"{settings.columns} frames"
        parts.append(f"the same place of the last {frames}")
    if settings.sinks:
        parts.append(f"the first {settings.sinks} of the clip")
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _sampling_lines(settings: SamplingSettings | None) -> list[tuple[str, str]]:
    if settings is None:
        return []
    kind = f"temperature {settings.temperature:g}" if settings.temperature else "greedy"
    top_k = f", top-k {settings.top_k}" if settings.top_k else ""
    top_p = f", top-p {settings.top_p:g}" if settings.top_p < 1 else ""
    guidance = f"{settings.guidance:g}" if settings.guided else "none"
    return [("sampling", kind + top_k + top_p), ("guidance", guidance)]
