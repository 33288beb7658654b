"""The picture: a drawing that any browser reads, with every kind of work at its place under the roof."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from fastcar.toolkit.planner.clip import Replay
from fastcar.toolkit.planner.plan import Plan, Request, plan_model
from fastcar.toolkit.planner.roofline import roofline_svg
from fastcar.toolkit.planner.shapes import load_shape

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module", params=[("llama-1.1b", "kv260"), ("car", "zcu104"), ("vila-u-7b", "u280")])
def plan(request: pytest.FixtureRequest) -> Plan:
    name, board = request.param
    shape = load_shape(name)
    shape = shape.model_copy(update={"frame_layout": shape.frame_layout.model_copy(update={"frames": 2})})
    return plan_model(Request(shape, board, replay=Replay(0.8, "all")))


def test_marks_are_where_they_belong(plan: Plan) -> None:
    text = roofline_svg(plan)
    assert "nan" not in text and "inf" not in text
    root = ElementTree.fromstring(text)
    width, height = map(float, root.get("viewBox", "").split()[2:])
    marks = {
        mark.find(f"{SVG}title").text: mark
        for mark in root.iter(f"{SVG}circle")
        if mark.find(f"{SVG}title") is not None
    }
    names = {name.split(",")[0] for name in marks}
    assert {"MLP", "whole step"} <= names and "norms" not in names
    places = {}
    for name, mark in marks.items():
        x, y = float(mark.get("cx")), float(mark.get("cy"))
        assert 0 < x < width and 0 < y < height
        intensity, rate = map(float, re.findall(r"([\d.]+) (?:MAC/byte|GMAC/s)", name))
        places[x, y] = intensity, rate
    by_x = sorted((x, intensity) for (x, _), (intensity, _) in places.items())
    assert [value for _, value in by_x] == sorted(value for _, value in by_x)
    by_y = sorted((-y, rate) for (_, y), (_, rate) in places.items())
    assert [value for _, value in by_y] == sorted(value for _, value in by_y)


def test_the_whole_step_is_under_the_roof(plan: Plan) -> None:
    config = plan.engine.config
    for mode in plan.modes.values():
        macs = 32 * sum(one.busy for one in mode.counts.step.values())
        rate = macs / mode.counts.cycles_per_step * mode.clock_mhz * 1e6
        assert rate <= 4 * config.groups * 32 * config.clock_mhz * 1e6
        sustained = plan.memory.beats_per_cycle * 16 * mode.clock_mhz * 1e6
        assert rate <= 1.001 * sustained * macs / mode.counts.bytes_per_step


def test_products_of_a_step_by_hand() -> None:
    """Two rows times every weight of the linear layers, scores and values."""
    shape = load_shape("llama-1.1b")
    c = shape.backbone
    plan = plan_model(Request(shape, "kv260"))
    kv = c.kv_heads * c.head_dim
    weights = c.layers * (2 * c.hidden**2 + 2 * c.hidden * kv + 3 * c.hidden * c.mlp)
    macs = 32 * plan.modes["dense"].counts.step["MLP"].busy
    assert macs == pytest.approx(2 * c.layers * 3 * c.hidden * c.mlp, rel=0.001)
    linear = 32 * sum(plan.modes["dense"].counts.step[name].busy for name in ("MLP", "attention projections"))
    assert linear == pytest.approx(2 * weights, rel=0.001)
