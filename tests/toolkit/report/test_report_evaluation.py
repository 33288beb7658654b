"""The README's table and figure of an evaluation: every setting once, where its numbers put it."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest

from fastcar.toolkit.report.evaluation import evaluation_figure, evaluation_table

SVG = "{http://www.w3.org/2000/svg}"


def setting(
    name: str, kind: str, nll: float, ratio: float, psnr: float | None, megabytes: float | None
) -> dict[str, Any]:
    pair = lambda value: None if value is None else {"mean": value, "spread": 0.1}
    return {
        "setting": name,
        "kind": kind,
        "nll": pair(nll),
        "eligible_replay_ratio": pair(ratio),
        "psnr_db": pair(psnr),
        "code_agreement": pair(0.25),
        "flicker": pair(1.5),
        "bytes_per_step": pair(None if megabytes is None else megabytes * 1e6),
        "speed_up": pair(1 + ratio),
    }


SETTINGS = [
    setting("dense", "dense", 1.0, 0.0, None, 5.0),
    setting("TAS, one threshold, 0.5", "threshold", 1.5, 0.5, 25.0, 4.0),
    setting("lots, 0.5", "random", 2.0, 0.5, 20.0, 4.0),
    setting("window 64", "dense", 1.1, 0.0, 30.0, 4.9),
    setting("dense", "dense", 1.0, 0.0, None, None),
    setting("similarity of MLP inputs, 0.5", "replay_ratio", 1.2, 0.5, 28.0, None),
]


def test_every_setting_has_one_row_in_its_order():
    head, line, *rows = evaluation_table(SETTINGS).splitlines()
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    assert [row[0] for row in cells] == [one["setting"] for one in SETTINGS if one is not SETTINGS[4]]
    assert {len(row) for row in cells} == {head.count("|") - 1} == {line.count("|") - 1}
    assert cells[0][1:] == ["0.0 %", "", "", "1.000 +- 0.100", "1.50", "5.00", "1.00 x"]
    assert cells[1][1:] == ["50.0 %", "25.00 +- 0.10", "25.0 %", "1.500 +- 0.100", "1.50", "4.00", "1.50 x"]
    assert cells[3][2] == "30.00 +- 0.10" and cells[4][6] == ""


def test_the_figure_stands_alone_and_shows_what_it_compares():
    figure = ElementTree.fromstring(evaluation_figure(SETTINGS))
    charts = figure.findall(f"{SVG}svg")
    assert len(charts) == 4
    points = [[circle.attrib for circle in chart.iter(f"{SVG}circle")] for chart in charts]
    likelihood = {point["class"]: point for point in points[1]}
    assert set(likelihood) == {"point dense", "point one", "point lots", "point similarity"}  # no window
    assert float(likelihood["point lots"]["data-x"]) == pytest.approx(50)
    assert float(likelihood["point lots"]["data-y"]) == pytest.approx(2)
    assert float(likelihood["point lots"]["cy"]) > float(likelihood["point one"]["cy"])  # worse is below
    assert "point dense" not in {point["class"] for point in points[2]}  # compared with itself
    texts = {text.text for text in figure.iter(f"{SVG}text")}
    assert {"dense", "drawn by lot", "similarity of MLP inputs"} <= texts
