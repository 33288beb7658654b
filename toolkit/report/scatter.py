"""Settings as points, quality over cost, with the line of those that no other one beats."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from .svg import Axes, element, figure, ticks

__all__ = ["Point", "scatter"]


@dataclass(frozen=True)
class Point:
    """``y`` infinite: a ring on the upper edge. ``spread``: of y, drawn up and down. ``kind``: a class of the page."""

    x: float
    y: float
    kind: str
    label: str
    hint: str
    spread: float = 0.0


def scatter(
    points: Sequence[Point], front: Sequence[int], x_name: str, y_name: str, *, lower_is_better: bool = False
) -> Markup:
    """Better is up: with ``lower_is_better`` the axis of y is turned over. ``front``: indices, in the line's order.

    Each point is a circle with its values in ``data-x`` and ``data-y``.
    """
    finite = [value for p in points for value in (p.y - p.spread, p.y + p.spread) if math.isfinite(value)]
    low, high = _padded(finite)
    left, right = _padded([point.x for point in points])
    axes = Axes((left, right), (high, low) if lower_is_better else (low, high), height=300)
    parts = [*axes.y_axis(ticks(low, high, 5) if finite else (), y_name), *axes.x_axis(ticks(left, right, 5), x_name)]
    top = axes.box[1]
    places = [(axes.x(p.x), axes.y(p.y) if math.isfinite(p.y) else top) for p in points]
    if len(front) > 1:
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in (places[index] for index in front))
        parts.append(element("polyline", points=line, class_="front"))
    for index, (point, place) in enumerate(zip(points, places, strict=True)):
        parts += _mark(axes, point, *place)
        if point.label and (index in front or point.kind == "published"):
            parts.append(_label(axes, point.label, *place, below=point.kind == "published" and index % 2 == 0))
    return figure(parts, axes.height, f"{y_name} over {x_name}", axes.width)


def _mark(axes: Axes, point: Point, x: float, y: float) -> list[Markup]:
    parts = []
    if point.spread and math.isfinite(point.y):
        ends = axes.y(point.y - point.spread), axes.y(point.y + point.spread)
        parts.append(element("line", x1=x, x2=x, y1=ends[0], y2=ends[1], class_=f"spread {point.kind}"))
    identical = "" if math.isfinite(point.y) else " same"
    values = {"data_x": str(point.x), "data_y": str(point.y), "data_label": point.label}
    hint = element("title", point.hint)
    parts.append(element("circle", hint, cx=x, cy=y, r=4.5, class_=f"point {point.kind}{identical}", **values))
    return parts


def _label(axes: Axes, text: str, x: float, y: float, below: bool) -> Markup:
    """Towards the middle of the drawing."""
    left, _, right, _ = axes.box
    shift, anchor = (7, "start") if x < left + 0.7 * (right - left) else (-7, "end")
    return element("text", text, x=x + shift, y=y + (16 if below else -6), class_=f"label {anchor}")


def _padded(values: Sequence[float]) -> tuple[float, float]:
    if not values:
        return 0.0, 1.0
    low, high = min(values), max(values)
    margin = 0.08 * (high - low) or 0.1 * abs(high) or 1.0
    return low - margin, high + margin
