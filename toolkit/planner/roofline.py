"""Roofline of a plan as one SVG file: what the memory and the groups allow, and where each kind of work lies."""

from __future__ import annotations

import math

from markupsafe import Markup

from ...hls.counting import OperationCounts
from ..program.memory import BEAT_BYTES, PORTS
from ..report.svg import Axes, element, figure
from .plan import ModePlan, Plan
from .step import whole

__all__ = ["GROUP_MACS", "roofline_svg"]

GROUP_MACS = 32
"""Multiply-accumulates of a processing group in a clock: two int8 products in each of 16 DSP48E2."""

HEIGHT, WIDTH, LEGEND = 400, 760, 250
SHOWN_SHARE = 0.002  # of the step's time: less is not drawn
COLOURS = {
    "MLP": "#c2410c", "attention projections": "#1d4ed8", "attention": "#0f766e", "head": "#7e22ce",
    "rotary, TAS, cache writes": "#a16207", "depth transformer": "#be185d", "projections": "#4d7c0f",
}  # fmt: skip
STYLE = """
svg { background: #fff; font-family: system-ui, sans-serif; font-size: 12px; fill: #1f2937 }
.grid { stroke: #e5e7eb } .axis { stroke: #6b7280 } .roof { stroke: #111827; stroke-width: 2; fill: none }
.middle { text-anchor: middle } .end { text-anchor: end } .tick { fill: #4b5563; font-size: 11px }
.title { font-size: 14px; font-weight: 600 } .small { font-size: 11px; fill: #4b5563 }
"""


def roofline_svg(plan: Plan) -> str:
    """Filled marks: dense; hollow: with replay and scheduling. Work without products (norms, sampling) has none."""
    config = plan.engine.config
    peak = PORTS * config.groups * GROUP_MACS * config.clock_mhz / 1e3  # GMAC/s
    bandwidth = plan.memory.beats_per_cycle * BEAT_BYTES * config.clock_mhz / 1e3  # GB/s
    shown = [mode for mode in ("dense", "replay+drs") if mode in plan.modes]
    points = [(mode, *point) for mode in shown for point in _points(plan.modes[mode])]
    intensities = [point[2] for point in points] + [peak / bandwidth]
    rates = [point[3] for point in points] + [peak]
    x_range = _decades(min(intensities) / 4, max(intensities) * 4)
    y_range = _decades(min(rates) / 4, peak * 1.5)
    axes = Axes(x_range, y_range, height=HEIGHT, width=WIDTH, margins=(62, LEGEND, 44, 60))
    marks = [_mark(axes, *point) for point in points]
    parts = [element("style", Markup(STYLE)), *_frame(axes), *_roof(axes, bandwidth, peak), *marks]
    parts += [*_title(plan), *_legend(points, shown)]
    svg = figure(parts, HEIGHT, f"Roofline of {plan.request.shape.name} on {plan.board.name}, estimated", WIDTH)
    return str(svg).replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1) + "\n"


def _points(mode: ModePlan) -> list[tuple[str, float, float]]:
    """(class, MAC/byte, GMAC/s) of what multiplies, and of the whole step."""
    step = mode.counts.step
    sums = whole(step)
    drawn = {name: one for name, one in step.items() if one.busy and one.cycles > SHOWN_SHARE * sums.cycles}
    return [(name, *_place(one, mode.clock_mhz)) for name, one in {**drawn, "whole step": sums}.items()]


def _place(operation: OperationCounts, clock_mhz: float) -> tuple[float, float]:
    macs = operation.busy * GROUP_MACS
    return macs / (operation.beats * BEAT_BYTES), macs / operation.cycles * clock_mhz / 1e3


def _decades(low: float, high: float) -> tuple[float, float]:
    return math.log10(low), math.log10(high)


def _frame(axes: Axes) -> list[Markup]:
    left, top, right, bottom = axes.box
    parts: list[Markup] = []
    for value in _steps(*axes.y_range):
        y = axes.y(math.log10(value))
        parts.append(element("line", x1=left, x2=right, y1=y, y2=y, class_="grid"))
        parts.append(element("text", f"{value:g}", x=left - 7, y=y + 4, class_="tick end"))
    for value in _steps(*axes.x_range):
        x = axes.x(math.log10(value))
        parts.append(element("line", x1=x, x2=x, y1=top, y2=bottom, class_="grid"))
        parts.append(element("text", f"{value:g}", x=x, y=bottom + 16, class_="tick middle"))
    parts.append(element("line", x1=left, x2=right, y1=bottom, y2=bottom, class_="axis"))
    name = "multiply-accumulates a byte moved"
    parts.append(element("text", name, x=(left + right) / 2, y=bottom + 34, class_="tick middle"))
    parts.append(element("text", "GMAC/s", x=4, y=top - 6, class_="tick"))
    return parts


def _steps(low: float, high: float) -> list[float]:
    """1, 2 and 5 times the powers of ten in between."""
    decades = range(math.floor(low), math.ceil(high) + 1)
    values = [step * 10.0**decade for decade in decades for step in (1, 2, 5)]
    return [value for value in values if low <= math.log10(value) <= high]


def _roof(axes: Axes, bandwidth: float, peak: float) -> list[Markup]:
    low, high = axes.x_range
    bottom, _ = axes.y_range
    corner = math.log10(peak / bandwidth)
    start = max(low, bottom - math.log10(bandwidth))
    corners = [(start, start + math.log10(bandwidth)), (corner, math.log10(peak)), (high, math.log10(peak))]
    path = " ".join(f"{axes.x(x):.1f},{axes.y(y):.1f}" for x, y in corners)
    line = element("polyline", points=path, class_="roof")
    low_on_it = start + 0.12 * (corner - start)
    x, y = axes.x(low_on_it), axes.y(low_on_it + math.log10(bandwidth))
    slope = element("text", f"{bandwidth:.1f} GB/s sustained", x=x + 10, y=y + 4, class_="small")
    flat = f"{peak:,.0f} GMAC/s of the groups"
    label = element("text", flat, x=axes.x(high) - 4, y=axes.y(math.log10(peak)) - 6, class_="small end")
    return [line, slope, label]


def _mark(axes: Axes, mode: str, name: str, intensity: float, rate: float) -> Markup:
    colour = COLOURS.get(name, "#111827")
    x, y = axes.x(math.log10(intensity)), axes.y(math.log10(rate))
    title = element("title", f"{name}, {mode}: {intensity:.2f} MAC/byte, {rate:.2f} GMAC/s")
    fill = colour if mode == "dense" else "none"
    size = (7 if name == "whole step" else 5) + (0 if mode == "dense" else 2)  # around one at the same place
    return element("circle", title, cx=x, cy=y, r=size, fill=fill, stroke=colour, stroke_width=2)


def _title(plan: Plan) -> list[Markup]:
    config, request = plan.engine.config, plan.request
    what = f"{request.shape.name} in {request.recipe} on {plan.board.name}: a step of {plan.rows.rows} rows"
    built = f"estimated; {PORTS} x {config.groups} groups at {config.clock_mhz:g} MHz, {plan.board.ddr.type}"
    return [element("text", what, x=4, y=16, class_="title"), element("text", built, x=4, y=32, class_="small")]


def _legend(points: list[tuple[str, str, float, float]], shown: list[str]) -> list[Markup]:
    parts: list[Markup] = []
    x, y = WIDTH - LEGEND + 24, 60
    for name in dict.fromkeys(point[1] for point in points):
        colour = COLOURS.get(name, "#111827")
        parts.append(element("circle", cx=x, cy=y - 4, r=5, fill=colour))
        parts.append(element("text", name, x=x + 12, y=y))
        y += 20
    kinds = {"dense": "filled: dense", "replay+drs": "hollow: replay, with scheduling"}
    for mode in shown:
        parts.append(element("text", kinds[mode], x=x - 5, y=y + 6, class_="small"))
        y += 18
    parts.append(element("text", "above the roof: fetched ahead,", x=x - 5, y=y + 14, class_="small"))
    parts.append(element("text", "while something else ran", x=x - 5, y=y + 29, class_="small"))
    return parts
