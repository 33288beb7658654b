"""``report.html``: one file that holds its videos, figures, style and script, and fetches nothing."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from markupsafe import Markup

from ..evaluation.metrics import WINDOW, psnr_per_frame, ssim_per_frame
from ..output import replacing
from .arrays import frame_layer_ratio, layer_ratio, tas_bins
from .embed import clip_media, place_tiles, player_data
from .plots import frame_bars, frame_line, heat_map, tas_histogram
from .settings_table import settings_table
from .summary import summary, summary_table
from .templating import TEMPLATES, template
from .view import ReportFacts, RunView, check_comparable

__all__ = ["report_html", "write_report"]

CARDS = {
    "speed_up": "Speed-up",
    "steps_per_second": "Steps/s",
    "eligible_replay_ratio": "Replayed, of eligible",
    "psnr_db": "PSNR",
    "ssim": "SSIM",
    "code_agreement": "Codes equal",
}


def write_report(path: str | os.PathLike[str], replay: RunView, dense: RunView | None, facts: ReportFacts) -> Path:
    """Write the report of a replay run, beside the ``dense`` run of the same bundle when there is one.

    ValueError when the runs do not show the same clips; OutputError when the file cannot be written.
    """
    content = report_html(replay, dense, facts)
    with replacing(path) as partial:
        partial.write_text(content, encoding="utf-8", errors="backslashreplace")  # paths need not be text
    return Path(path)


def report_html(replay: RunView, dense: RunView | None, facts: ReportFacts) -> str:
    """The text of the report."""
    check_comparable(replay, dense)
    numbers = summary(replay, dense)
    return template("report.html.j2").render(
        style=_text("report.css"),
        script=_text("report.js"),
        prompts=replay.generation.prompts,
        facts=facts,
        run=replay,
        has_dense=dense is not None,
        replay_name="Replay" if any(t is not None for t in replay.thresholds) else "No layer replays",
        cards=_cards(numbers),
        table=summary_table(numbers),
        numbers=numbers,
        settings=settings_table(replay, facts),
        clips=[_clip(index, replay, dense, facts) for index in range(replay.clips)],
        tiles=place_tiles(replay),
        player=player_data(replay, facts),
        heat=heat_map(frame_layer_ratio(replay.generation)),
        layers=_layers(replay),
        histogram=_histogram(replay),
        seconds=_seconds(replay, dense),
    )


def _text(name: str) -> Markup:
    return Markup((TEMPLATES / name).read_text(encoding="utf-8"))


def _cards(numbers: dict) -> list[dict[str, str]]:
    """The headline numbers: label, value, unit and a note."""
    frames = numbers["clips"] * numbers["frames"]
    notes = {
        "steps_per_second": _note("{:,.1f} dense", numbers.get("dense_steps_per_second")),
        "speed_up": _note("{:.2f} x after frame 0", numbers.get("eligible_speed_up")),
        "eligible_replay_ratio": _note("{:.1%} with frame 0", numbers["replay_ratio"]).replace("%", " %"),
        "psnr_db": _note("{} of {} frames identical", numbers.get("identical_frames"), frames),
        "ssim": "mean over frames",
        "code_agreement": "with the dense run",
    }
    cards = []
    for key, label in CARDS.items():
        shown = summary_table({key: numbers.get(key), "identical_frames": numbers.get("identical_frames")}, [key])
        for _, text in shown:
            value, _, unit = text.partition(" ")
            cards.append({"label": label, "value": value, "unit": unit, "note": notes[key]})
    return cards


def _note(form: str, *values: float | None) -> str:
    return "" if None in values else form.format(*values)


def _clip(index: int, replay: RunView, dense: RunView | None, facts: ReportFacts) -> dict:
    """Videos and per-frame figures of one clip."""
    views = {"dense": dense, "replay": replay} if dense else {"replay": replay}
    rate = facts.frames_per_second
    clip = {"videos": {name: clip_media(view.frames[index], rate) for name, view in views.items()}, "quality": []}
    if dense:
        clip["quality"] = list(_quality(index, replay, dense))
    return clip


def _quality(index: int, replay: RunView, dense: RunView) -> list[tuple[str, str, Markup]]:
    """Title, note and figure of each per-frame measure."""
    reference, video = dense.frames[index], replay.frames[index]
    decibels = psnr_per_frame(reference, video)
    equal = dense.generation.codes[index] == replay.generation.codes[index]
    agreement = equal.reshape(len(equal), -1).mean(axis=1)
    figures = [("PSNR", "against the dense run; a ring marks an identical frame", frame_line(decibels, "dB", "replay"))]
    if min(video.shape[1:3]) >= WINDOW:
        similarity = ssim_per_frame(reference, video)
        low = min(0.9, float(similarity.min()) - 0.03)
        figures.append(("SSIM", "1 is identical", frame_line(similarity, "", "replay", (low, 1.0))))
    share = frame_line(100 * agreement, "%", "replay", (0.0, 100.0))
    return [*figures, ("Codes equal to dense", "share of the codes of a frame", share)]


def _layers(replay: RunView) -> list[dict]:
    """One entry a layer: its number, threshold, share of eligible evaluations replayed, and small histogram."""
    bins, ratios = tas_bins(replay.generation), layer_ratio(replay.generation)
    return [
        {
            "number": layer,
            "threshold": threshold,
            "ratio": None if np.isnan(ratios[layer]) else float(ratios[layer]),
            "figure": tas_histogram(bins, [layer], [threshold], small=True) if bins else None,
        }
        for layer, threshold in enumerate(replay.thresholds)
    ]


def _histogram(replay: RunView) -> Markup | None:
    bins = tas_bins(replay.generation)
    return tas_histogram(bins, range(replay.layers), replay.thresholds) if bins else None


def _seconds(replay: RunView, dense: RunView | None) -> Markup:
    series = [("dense", dense.generation.seconds)] if dense else []
    return frame_bars([*series, ("replay", replay.generation.seconds)], "s")
