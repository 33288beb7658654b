"""sweep.html: every setting is where its figures say, the front is the line, and nothing is fetched."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from fastcar.toolkit.cli.sweep import _published
from fastcar.toolkit.planner.paper import DENSE_SECONDS, PUBLISHED
from fastcar.toolkit.planner.published import published_replay
from fastcar.toolkit.report.sweep import PublishedPoint, SweepFacts, sweep_html, write_sweep_report

INF, NAN = math.inf, math.nan


def row(setting: str, kind: str, seed: int, **values: Any) -> dict[str, Any]:
    same = {
        "bundle": "b<1>", "recipe": "w8a8", "policy": "all", "wanted_ratio": None, "thresholds": [None], "prompt": "p",
        "frames": 4, "replay_ratio": 0.0, "eligible_replay_ratio": 0.0, "skipped_ratio": 0.0, "seconds": 1.0,
        "steps_per_second": 64.0, "ssim": 0.5, "flicker": 2.0,
    }  # fmt: skip
    return same | {"setting": setting, "kind": kind, "seed": str(seed)} | values


ROWS = [
    row("dense", "dense", 0, speed_up=1.0, bytes_per_step=5e6, psnr_db=INF, code_agreement=1.0, nll=1.25),
    row("dense", "dense", 1, speed_up=1.0, bytes_per_step=5e6, psnr_db=INF, code_agreement=1.0, nll=1.75),
    row("ratio 0.5", "replay_ratio", 0, speed_up=1.5, bytes_per_step=4e6, psnr_db=20.0, code_agreement=0.25, nll=2.0),
    row("ratio 0.5", "replay_ratio", 1, speed_up=1.25, bytes_per_step=3e6, psnr_db=24.0, code_agreement=0.75, nll=2.5),
    row("random 0.5", "random", 0, speed_up=1.25, bytes_per_step=4e6, psnr_db=17.0, code_agreement=0.25, nll=3.0),
    row("random 0.5", "random", 1, speed_up=1.0, bytes_per_step=4e6, psnr_db=19.0, code_agreement=0.5, nll=4.0),
]
FACTS = SweepFacts("machine", 2, {"numpy": "1"}, "fastcar sweep", [PublishedPoint("80 %", 1.76, 17.71)], "a paper")


def charts(html: str) -> list[tuple[str, ElementTree.Element]]:
    found = re.findall(r'<figure class="chart"><figcaption><b>(.*?)</b></figcaption>(<svg.*?</svg>)', html, re.DOTALL)
    return [(title, ElementTree.fromstring(svg)) for title, svg in found]


def points(svg: ElementTree.Element) -> dict[str, tuple[float, float]]:
    return {c.get("data-label"): (float(c.get("data-x")), float(c.get("data-y"))) for c in svg.iter("circle")}


def test_every_chart_has_every_setting_at_its_mean() -> None:
    found = dict(charts(sweep_html(ROWS, FACTS)))
    assert list(found) == [
        "PSNR over speed-up over dense", "PSNR over MB a step", "codes equal over speed-up over dense",
        "codes equal over MB a step", "NLL over speed-up over dense", "NLL over MB a step",
    ]  # fmt: skip
    psnr = points(found["PSNR over speed-up over dense"])
    assert psnr == {"1": (1.0, INF), "2": (1.375, 22.0), "3": (1.125, 18.0), "80 %": (1.76, 17.71)}
    assert points(found["NLL over MB a step"]) == {"1": (5.0, 1.5), "2": (3.5, 2.25), "3": (4.0, 3.5)}
    assert points(found["codes equal over MB a step"])["2"] == (3.5, 50.0)


@pytest.mark.parametrize("title", ["PSNR over speed-up over dense", "NLL over MB a step"])
def test_circles_lie_where_the_axes_say(title: str) -> None:
    """By the tick labels: place = a + b * value through two of them."""
    svg = dict(charts(sweep_html(ROWS, FACTS)))[title]
    for axis, anchor in (("x", "middle"), ("y", "end")):
        ticks = []
        for text in svg.iter("text"):
            if text.get("class") == f"tick {anchor}" and re.fullmatch(r"-?[\d.]+", text.text):
                ticks.append((float(text.text), float(text.get(axis)) - (4 if axis == "y" else 0)))
        (v0, p0), (v1, p1) = ticks[0], ticks[-1]
        assert (p1 > p0) == ((v1 > v0) if axis == "x" or title.startswith("NLL") else (v1 < v0)), "better is up"
        for circle in svg.iter("circle"):
            value, place = float(circle.get(f"data-{axis}")), float(circle.get(f"c{axis}"))
            expected = p0 + (p1 - p0) * (value - v0) / (v1 - v0) if math.isfinite(value) else 26.0
            assert place == pytest.approx(expected, abs=0.05)


def test_the_front_joins_what_nothing_beats() -> None:
    for title, svg in charts(sweep_html(ROWS, FACTS)):
        (line,) = svg.iter("polyline")
        joined = [tuple(map(float, pair.split(","))) for pair in line.get("points").split()]
        circles = {c.get("data-label"): (float(c.get("cx")), float(c.get("cy"))) for c in svg.iter("circle")}
        expected = sorted(
            circles[label] for label in ("1", "2")
        )  # dense and ratio 0.5; random is beaten in all of them
        assert sorted(joined) == [pytest.approx(pair, abs=0.06) for pair in expected], title


def test_table_text_and_escapes() -> None:
    html = sweep_html(ROWS, FACTS)
    assert "22 (2.83)" in html and "3.5 (0.707)" in html and "b&lt;1&gt;" in html and "b<1>" not in html
    assert "<td>identical</td>" in html and "a paper" in html
    assert not re.search(r'(src|href)="(?!data:)|@import|url\(', html)


def test_what_is_not_counted_is_said() -> None:
    html = sweep_html([one | {"bytes_per_step": NAN} for one in ROWS], FACTS)
    assert html.count("Not counted.") == 3 and len(charts(html)) == 3


def test_it_is_written(tmp_path: Path) -> None:
    assert write_sweep_report(tmp_path / "sweep.html", ROWS, FACTS).read_text("utf-8") == sweep_html(ROWS, FACTS)


def test_published_points_are_the_papers() -> None:
    """Ratio and window, rounded speed-up, PSNR, as the publication's tables are quoted."""
    source, found = _published()
    assert "another model and machine" in source and "VILA-U 7B" in source
    assert [(one.name, round(one.speed_up, 2), one.psnr_db) for one in found] == [
        ("window 256", 1.03, 18.25), ("window 16", 1.04, 13.30), ("20 %", 1.24, 17.94), ("50 %", 1.45, 17.85),
        ("80 %", 1.77, 17.71), ("87 %, window 256", 1.95, 17.44), ("87 %, window 16", 2.13, 17.27),
    ]  # fmt: skip
    assert [(row.ratio, row.window, row.seconds) for row in published_replay().rows] == list(PUBLISHED)
    assert DENSE_SECONDS == 689.7
