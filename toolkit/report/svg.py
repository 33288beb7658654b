"""Inline SVG by hand: a coordinate system with ticks, and escaped elements. Colours are the page's, by class."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from markupsafe import Markup, escape

__all__ = ["Axes", "element", "figure", "ticks"]

WIDTH = 460  # units of the view box; one unit is about one pixel in a column of the page


def element(name: str, content: object = "", **attributes: object) -> Markup:
    """``<name a="b">content</name>``, escaped where not markup yet; attributes as ``class_`` and ``font_size``."""
    pairs = (f' {key.rstrip("_").replace("_", "-")}="{_short(value)}"' for key, value in attributes.items())
    return Markup(f"<{name}{''.join(pairs)}>{escape(content)}</{name}>")


def figure(parts: Iterable[Markup], height: float, title: str, width: float = WIDTH) -> Markup:
    """A drawing that fills the width it is given; ``title`` is read out by screen readers."""
    body = Markup("").join(parts)
    box = f"0 0 {_short(width)} {_short(height)}"
    return Markup('<svg viewBox="{}" role="img" aria-label="{}">{}</svg>').format(box, title, body)


def ticks(low: float, high: float, count: int = 4) -> list[float]:
    """Round values (1, 2, 2.5 or 5 times a power of ten) within [low, high], about ``count`` of them."""
    if not high > low:
        return [low]
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(step * power for step in (1, 2, 2.5, 5, 10) if step * power >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [index * step for index in range(first, math.floor(high / step + 1e-9) + 1)]


@dataclass(frozen=True)
class Axes:
    """Linear map from data to the view box: ``x`` and ``y`` ranges, margins (top, right, bottom, left) in units."""

    x_range: tuple[float, float]
    y_range: tuple[float, float]
    height: float = 210
    width: float = WIDTH
    margins: tuple[float, float, float, float] = (26, 10, 38, 46)

    @property
    def box(self) -> tuple[float, float, float, float]:
        """Left, top, right and bottom of the plotting area."""
        top, right, bottom, left = self.margins
        return left, top, self.width - right, self.height - bottom

    def x(self, value: float) -> float:
        left, _, right, _ = self.box
        return left + (right - left) * _fraction(value, self.x_range)

    def y(self, value: float) -> float:
        _, top, _, bottom = self.box
        return bottom - (bottom - top) * _fraction(value, self.y_range)

    def y_axis(self, values: Iterable[float], unit: str = "") -> list[Markup]:
        """Horizontal grid lines with their values, and the unit above them."""
        left, top, right, _ = self.box
        lines: list[Markup] = []
        for value in values:
            y = self.y(value)
            lines.append(element("line", x1=left, x2=right, y1=y, y2=y, class_="grid"))
            lines.append(element("text", f"{value:g}", x=left - 7, y=y + 4, class_="tick end"))
        return [*lines, element("text", unit, x=2, y=top - 10, class_="tick start unit")] if unit else lines

    def x_axis(self, values: Iterable[float], name: str) -> list[Markup]:
        """Values below the area and the name of the axis under them."""
        left, _, right, bottom = self.box
        labels = [element("text", f"{v:g}", x=self.x(v), y=bottom + 16, class_="tick middle") for v in values]
        name_text = element("text", name, x=(left + right) / 2, y=bottom + 33, class_="tick middle")
        base = element("line", x1=left, x2=right, y1=bottom, y2=bottom, class_="axis")
        return [base, *labels, name_text]


def _fraction(value: float, limits: tuple[float, float]) -> float:
    low, high = limits
    return (value - low) / (high - low) if high != low else 0.5


def _short(value: object) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else escape(value)
