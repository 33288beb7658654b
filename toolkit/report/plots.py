"""The figures of the report as inline SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from markupsafe import Markup

from .arrays import TasBins
from .svg import Axes, element, figure, ticks

__all__ = ["frame_bars", "frame_line", "heat_map", "tas_histogram"]


def heat_map(ratios: np.ndarray) -> Markup:
    """Replay ratio (frames, layers) as cells, frames to the right and layers downwards, the first layer on top."""
    frames, layers = ratios.shape
    cell_height = min(34.0, max(9.0, 270.0 / layers))
    axes = Axes((0, frames), (layers, 0), height=layers * cell_height + 64)
    cell_width = axes.x(1) - axes.x(0)
    parts = []
    for layer, frame in np.ndindex(layers, frames):
        ratio = ratios[frame, layer]
        x, y = axes.x(frame) + 0.75, axes.y(layer) + 0.75
        place = {"x": x, "y": y, "width": cell_width - 1.5, "height": cell_height - 1.5}
        hint = element("title", f"frame {frame}, layer {layer}: {100 * ratio:.0f} % replayed")
        parts.append(element("rect", rx=2, class_="cell", **place))
        marks = {"data_frame": frame, "data_layer": layer}
        parts.append(element("rect", hint, rx=2, class_="cell hot", fill_opacity=float(ratio), **marks, **place))
    every = math.ceil(13 / cell_height)
    middle = cell_height / 2 + 4
    for layer in range(0, layers, every):
        parts.append(element("text", layer, x=axes.box[0] - 7, y=axes.y(layer) + middle, class_="tick end"))
    parts.append(element("text", "layer", x=2, y=axes.box[1] - 10, class_="tick start unit"))
    return figure([*parts, *_frame_axis(axes, frames)], axes.height, "Replay ratio of each frame and layer")


def tas_histogram(
    bins: TasBins, layers: Sequence[int], thresholds: Sequence[float | None], small: bool = False
) -> Markup:
    """Evaluations by TAS over ``layers``, replayed stacked on computed, with each threshold as a dashed line."""
    computed, replayed = (counts[list(layers)].sum(axis=0) for counts in (bins.computed, bins.replayed))
    highest = max(1, int((computed + replayed).max()))
    span = (float(bins.edges[0]), float(bins.edges[-1]))
    layout = {"height": 78.0, "width": 200.0, "margins": (6, 4, 16, 4)} if small else {"height": 270.0}
    axes = Axes(span, (0, highest * 1.04), **layout)
    parts = [] if small else axes.y_axis(_counts(highest), "evaluations")
    for index in np.flatnonzero(computed + replayed):
        parts += _stack(axes, bins.edges[index : index + 2], int(computed[index]), int(replayed[index]))
    values = sorted({t for t in thresholds if t is not None})
    for value in values:
        parts += _threshold_line(axes, value, span, named=not small and len(values) == 1)
    parts += _small_axis(axes, span) if small else axes.x_axis(ticks(*span, 7), "TAS")
    return figure(parts, axes.height, "Histogram of TAS by decision", axes.width)


def frame_line(values: np.ndarray, unit: str, kind: str, limits: tuple[float, float] | None = None) -> Markup:
    """One value a frame (frames,) as a line; a ring on the upper edge where it is inf: an identical frame."""
    finite = values[np.isfinite(values)]
    low, high = limits or _padded(finite)
    axes = Axes((-0.5, len(values) - 0.5), (low, high), height=180, width=370)
    parts = axes.y_axis(ticks(low, high) if finite.size else (), unit)
    runs = np.split(np.arange(len(values)), np.flatnonzero(~np.isfinite(values)))
    for run in (run[np.isfinite(values[run])] for run in runs):
        points = " ".join(f"{axes.x(i):.1f},{axes.y(values[i]):.1f}" for i in run)
        parts.append(element("polyline", points=points, class_=f"line {kind}"))
    for index, value in enumerate(values):
        known = math.isfinite(value)
        hint = element("title", f"frame {index}: {value:.4g} {unit}" if known else f"frame {index}: identical")
        y = axes.y(value) if known else axes.box[1]
        parts.append(element("circle", hint, cx=axes.x(index), cy=y, r=4, class_=f"dot {kind if known else 'same'}"))
    return figure([*parts, *_frame_axis(axes, len(values), 0.0)], axes.height, f"{unit} of each frame", axes.width)


def frame_bars(series: Sequence[tuple[str, np.ndarray]], unit: str) -> Markup:
    """Bars side by side for each frame, one of each (class name, values (frames,)) in ``series``."""
    frames, highest = len(series[0][1]), max(float(np.max(values)) for _, values in series)
    axes = Axes((0, frames), (0, highest * 1.05 or 1.0), height=330)
    parts = axes.y_axis(ticks(0, axes.y_range[1]), unit)
    slot = (axes.x(1) - axes.x(0)) * 0.78 / len(series)
    slot = min(slot, 40.0)
    for number, (name, values) in enumerate(series):
        for frame, value in enumerate(values):
            left = axes.x(frame + 0.5) + (number - len(series) / 2) * slot
            hint = element("title", f"frame {frame}, {name}: {value:.4g} {unit}")
            top = axes.y(float(value))
            box = {"x": left, "y": top, "width": max(slot - 1, 1.0), "height": max(axes.box[3] - top, 0.0)}
            parts.append(element("rect", hint, rx=1.5, class_=f"bar {name}", **box))
    return figure([*parts, *_frame_axis(axes, frames)], axes.height, f"{unit} of each frame")


def _stack(axes: Axes, edges: np.ndarray, computed: int, replayed: int) -> list[Markup]:
    """The two bars of one bin, replayed on top."""
    left, right = axes.x(float(edges[0])), axes.x(float(edges[1]))
    hint = element("title", f"TAS {edges[0]:.2f} to {edges[1]:.2f}: {computed:,} computed, {replayed:,} replayed")
    parts = []
    for kind, low, high in (("computed", 0, computed), ("replayed", computed, computed + replayed)):
        top = axes.y(high)
        box = {"x": left + 0.4, "y": top, "width": max(right - left - 0.8, 0.6), "height": axes.y(low) - top}
        if high > low:
            parts.append(element("rect", hint, class_=f"bar {kind}", **box))
    return parts


def _threshold_line(axes: Axes, value: float, span: tuple[float, float], named: bool) -> list[Markup]:
    """The threshold, at the edge nearest to it when it lies outside."""
    inside = span[0] <= value <= span[1]
    x = axes.x(min(max(value, span[0]), span[1]))
    line = element("line", x1=x, x2=x, y1=axes.box[1], y2=axes.box[3], class_="threshold")
    if not named:
        return [line]
    right_half = x > (axes.box[0] + axes.box[2]) / 2
    name = f"threshold {value:.3g}" + ("" if inside else " (beyond all TAS)")
    shift, anchor = (-6, "end") if right_half else (6, "start")
    return [line, element("text", name, x=x + shift, y=axes.box[1] - 6, class_=f"tick strong {anchor}")]


def _small_axis(axes: Axes, span: tuple[float, float]) -> list[Markup]:
    left, _, right, bottom = axes.box
    base = element("line", x1=left, x2=right, y1=bottom, y2=bottom, class_="axis")
    ends = ((left, span[0], "start"), (right, span[1], "end"))
    return [base, *(element("text", f"{v:.1f}", x=x, y=bottom + 13, class_=f"tick {side}") for x, v, side in ends)]


def _frame_axis(axes: Axes, frames: int, shift: float = 0.5) -> list[Markup]:
    """Frame numbers under the middle of each frame's place, thinned out to what fits."""
    left, _, right, bottom = axes.box
    every = max(1, math.ceil(frames * 20 / (right - left)))
    places = ((frame, axes.x(frame + shift)) for frame in range(0, frames, every))
    numbers = [element("text", frame, x=x, y=bottom + 16, class_="tick middle") for frame, x in places]
    return [*numbers, element("text", "frame", x=(left + right) / 2, y=bottom + 33, class_="tick middle")]


def _padded(values: np.ndarray) -> tuple[float, float]:
    if not values.size:
        return 0.0, 1.0
    low, high = float(values.min()), float(values.max())
    margin = (high - low) * 0.15 or 1.0
    return low - margin, high + margin


def _counts(highest: int) -> list[float]:
    return [value for value in ticks(0, highest, 4) if value == int(value)]
