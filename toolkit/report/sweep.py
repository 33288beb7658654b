"""``sweep.html``: the settings of a sweep as fronts of quality over cost, and as a table; one file, fetches nothing."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from markupsafe import Markup

from ..evaluation.statistics import pareto, setting_rows
from ..output import replacing
from .scatter import Point, scatter
from .templating import TEMPLATES, template

__all__ = ["PublishedPoint", "SweepFacts", "sweep_html", "write_sweep_report"]

KINDS = {"dense": "dense", "random": "baseline", "layers": "baseline"}  # the others follow TAS
QUALITIES = (
    ("psnr_db", "PSNR", "dB", 1.0),
    ("code_agreement", "codes equal", "%", 100.0),
    ("nll", "NLL", "nats/code", 1.0),
)
COSTS = (("speed_up", "speed-up over dense", 1.0), ("bytes_per_step", "MB a step", 1e-6))


@dataclass(frozen=True)
class PublishedPoint:
    """Of another model on another machine: PSNR against its dense clip, and speed-up."""

    name: str
    speed_up: float
    psnr_db: float


@dataclass(frozen=True)
class SweepFacts:
    """``processes`` 0: a cluster's. ``published`` with its ``source`` is drawn where PSNR and speed-up are. ``notes``:
    sentences to show."""

    machine: str
    processes: int
    versions: Mapping[str, str] = field(default_factory=dict)
    command: str = ""
    published: Sequence[PublishedPoint] = ()
    source: str = ""
    notes: Sequence[str] = ()


def write_sweep_report(path: str | os.PathLike[str], rows: Sequence[dict[str, Any]], facts: SweepFacts) -> Path:
    """OutputError when the file cannot be written."""
    content = sweep_html(rows, facts)
    with replacing(path) as partial:
        partial.write_text(content, encoding="utf-8", errors="backslashreplace")
    return Path(path)


def sweep_html(rows: Sequence[dict[str, Any]], facts: SweepFacts) -> str:
    """``rows``: of ``runs.parquet``, at least one. A section a bundle."""
    settings = setting_rows(rows)
    bundles = list(dict.fromkeys(one["bundle"] for one in settings))
    return template("sweep.html.j2").render(
        style=Markup((TEMPLATES / "report.css").read_text("utf-8") + (TEMPLATES / "sweep.css").read_text("utf-8")),
        facts=facts,
        runs=len(rows),
        prompts=list(dict.fromkeys(row["prompt"] for row in rows)),
        seeds=len({row["seed"] for row in rows}),
        frames=rows[0]["frames"],
        sections=[_section([one for one in settings if one["bundle"] == name], facts) for name in bundles],
    )


def _section(settings: list[dict[str, Any]], facts: SweepFacts) -> dict[str, Any]:
    return {
        "name": settings[0]["bundle"],
        "recipe": settings[0]["recipe"],
        "charts": [
            {"title": f"{quality[1]} over {cost[1]}", "figure": _chart(settings, quality, cost, facts)}
            for quality in QUALITIES
            for cost in COSTS
        ],
        "rows": [_table_row(number, one) for number, one in enumerate(settings, 1)],
    }


def _chart(settings: list[dict[str, Any]], quality: tuple, cost: tuple, facts: SweepFacts) -> Markup | None:
    """None if nothing was measured, such as bytes that are not counted."""
    name, title, unit, scale = quality
    points = []
    for number, one in enumerate(settings, 1):
        value, price = one[name], one[cost[0]]
        if name == "psnr_db" and one["identical"] == one["runs"]:
            value = {"mean": math.inf, "spread": 0.0}
        if value is None or price is None:
            continue
        x, y, spread = cost[2] * price["mean"], scale * value["mean"], scale * value["spread"]
        hint = f"{one['setting']}: {_number(y)} {unit}, {_number(x)} {cost[1]}"
        points.append(Point(x, y, KINDS.get(one["kind"], "replay"), str(number), hint, spread))
    if not points:
        return None
    better_y, better_x = -1 if name == "nll" else 1, -1 if cost[0] == "bytes_per_step" else 1
    front = pareto([(better_x * point.x, better_y * point.y) for point in points])
    if name == "psnr_db" and cost[0] == "speed_up":
        for other in facts.published:
            hint = f"{facts.source}, {other.name}: {other.psnr_db:g} dB, {other.speed_up:.2f} x"
            points.append(Point(other.speed_up, other.psnr_db, "published", other.name, hint))
    return scatter(points, front, cost[1], f"{title}, {unit}", lower_is_better=name == "nll")


def _table_row(number: int, one: dict[str, Any]) -> list[str]:
    psnr = _spread(one["psnr_db"])
    if one["identical"]:
        psnr = "identical" if one["psnr_db"] is None else f"{psnr}; {one['identical']} of {one['runs']} identical"
    thresholds = {value for value in one["thresholds"] if value is not None}
    return [
        str(number),
        one["setting"],
        f"{thresholds.pop():.4g}" if len(thresholds) == 1 and one["kind"] == "replay_ratio" else "",
        _spread(one["eligible_replay_ratio"], 100),
        _spread(one["skipped_ratio"], 100),
        _spread(one["speed_up"]),
        _spread(one["steps_per_second"]),
        _spread(one["bytes_per_step"], 1e-6),
        psnr,
        _spread(one["ssim"]),
        _spread(one["code_agreement"], 100),
        _spread(one["nll"]),
        _spread(one["flicker"]),
    ]


def _spread(pair: dict[str, float] | None, unit: float = 1.0) -> str:
    return "" if pair is None else f"{_number(unit * pair['mean'])} ({_number(unit * pair['spread'])})"


def _number(value: float) -> str:
    return "identical" if math.isinf(value) else f"{value:.1f}" if abs(value) >= 100 else f"{value:.3g}"
