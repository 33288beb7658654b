"""The evaluation of replay as a table for a README and a figure: quality over speed and over what replays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from .scatter import Point, scatter

__all__ = ["evaluation_figure", "evaluation_table"]

STYLE = """
svg { font: 11px sans-serif; background: #fff; } text { fill: #333; } .grid, .axis { stroke: #ddd; }
.point { stroke: #fff; } .point.one { fill: #1f6fb5; } .point.layer { fill: #0b3d66; } .point.lots { fill: #c96a1b; }
.point.fixed { fill: #8a8a8a; } .point.similarity { fill: #2f8f4e; } .point.dense { fill: #000; }
.front { fill: none; stroke: #333; stroke-dasharray: 4 3; opacity: .5; } .spread { stroke: #999; opacity: .5; }
"""
KINDS = {
    "dense": ("dense", "dense"),
    "TAS, one threshold": ("one", "TAS, one threshold"),
    "TAS, one a layer": ("layer", "TAS, one a layer"),
    "similarity": ("similarity", "similarity of MLP inputs"),
    "lots": ("lots", "drawn by lot"),
    "layers": ("fixed", "fixed layers"),
}
COLOURS = {"dense": "#000", "one": "#1f6fb5", "layer": "#0b3d66", "similarity": "#2f8f4e", "lots": "#c96a1b",
           "fixed": "#8a8a8a"}  # fmt: skip
HEADER = (
    "setting", "replayed, of eligible", "PSNR, dB", "codes equal", "NLL, nats/code", "flicker", "MB/step",
    "steps/s over dense",
)  # fmt: skip


def evaluation_table(settings: Sequence[dict[str, Any]]) -> str:
    """Markdown, a row a setting: mean +- standard deviation over clips of PSNR and NLL, means of the others."""
    lines = [f"| {' | '.join(HEADER)} |", f"|{'---|' * len(HEADER)}"]
    for one in _once(settings):
        dense = one["kind"] == "dense" and one["psnr_db"] is None
        cells = (
            one["setting"],
            _mean(one["eligible_replay_ratio"], "{:.1f} %", 100),
            "" if dense else _both(one["psnr_db"], "{:.2f}"),
            "" if dense else _mean(one["code_agreement"], "{:.1f} %", 100),
            _both(one["nll"], "{:.3f}"),
            _mean(one["flicker"], "{:.2f}"),
            _mean(one["bytes_per_step"], "{:.2f}", 1e-6),
            _mean(one["speed_up"], "{:.2f} x"),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def evaluation_figure(settings: Sequence[dict[str, Any]]) -> str:
    """SVG with its style: likelihood over speed; it, PSNR and equal codes over what replays, of ``KINDS``."""
    shown = [(one, _kind(one["setting"])) for one in _once(settings)]
    shown = [(one, kind) for one, kind in shown if kind]
    charts = [
        ("nll", "NLL, nats/code (better is up)", 1.0, "speed_up", "steps/s over dense", 1.0),
        ("nll", "NLL, nats/code (better is up)", 1.0, "eligible_replay_ratio", "replayed of eligible, %", 100.0),
        ("psnr_db", "PSNR against dense, dB", 1.0, "eligible_replay_ratio", "replayed of eligible, %", 100.0),
        ("code_agreement", "codes equal to dense, %", 100.0, "eligible_replay_ratio", "replayed of eligible, %", 100.0),
    ]
    parts = []
    for number, (quality, y_name, y_scale, cost, x_name, x_scale) in enumerate(charts):
        points = []
        for one, kind in shown:
            value, price = one[quality], one[cost]
            if value is None or price is None or (kind == "dense" and quality != "nll"):
                continue
            x, y = x_scale * price["mean"], y_scale * value["mean"]
            points.append(Point(x, y, kind, "", one["setting"], y_scale * value["spread"]))
        if points:
            chart = scatter(points, (), x_name, y_name, lower_is_better=quality == "nll")
            place = f'<svg x="{470 * (number % 2)}" y="{310 * (number // 2)}" width="460" height="300" '
            parts.append(Markup(place) + Markup(str(chart)[len("<svg ") :]))
    legend = "".join(
        f'<circle cx="{20 + 155 * index}" cy="632" r="5" fill="{COLOURS[kind]}"/>'
        f'<text x="{30 + 155 * index}" y="636">{text}</text>'
        for index, (kind, text) in enumerate(KINDS.values())
    )
    head = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 940 650" width="940" height="650">'
    return f"{head}<style>{STYLE}</style>{Markup('').join(parts)}{legend}</svg>\n"


def _once(settings: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The dense reference of a second bundle says nothing new."""
    found: dict[str, dict[str, Any]] = {}
    for one in settings:
        found.setdefault(one["setting"], one)
    return list(found.values())


def _kind(setting: str) -> str | None:
    return next((kind for start, (kind, _) in KINDS.items() if setting.startswith(start)), None)


def _mean(pair: dict[str, float] | None, form: str, scale: float = 1.0) -> str:
    return "" if pair is None else form.format(scale * pair["mean"])


def _both(pair: dict[str, float] | None, form: str) -> str:
    return "" if pair is None else f"{form.format(pair['mean'])} +- {form.format(pair['spread'])}"
