"""Reports in the vendor's form, read; damaged ones give one error that names the file and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest
import vendor_reports as vendor

from fastcar.overlays.flow.errors import ReportError
from fastcar.overlays.flow.reports_hls import Loop, read_cosim, read_csynth
from fastcar.overlays.flow.reports_timing import read_timing
from fastcar.overlays.flow.reports_vivado import (
    Clock,
    Drc,
    Power,
    Route,
    read_drc,
    read_power,
    read_route,
    read_utilization,
)

PART, DESIGN = "xck26-sfvc784-2LV-c", "fastcar_0123abcd_wrapper"
READERS = {
    "csynth.xml": read_csynth,
    "cosim.rpt": read_cosim,
    "utilization_placed.rpt": read_utilization,
    "timing_summary_routed.rpt": read_timing,
    "power_routed.rpt": read_power,
    "drc_routed.rpt": read_drc,
    "route_status.rpt": read_route,
}


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    vendor.write_reports(tmp_path, DESIGN, PART, "2024.1")
    return tmp_path


def edited(reports: Path, name: str, old: str, new: str) -> Path:
    path = reports / name
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    return path


def refused(reader, path: Path) -> ReportError:
    with pytest.raises(ReportError) as caught:
        reader(path)
    assert caught.value.subject == str(path)
    assert "\n" not in str(caught.value) and caught.value.fix.startswith("Run again with --from ")
    return caught.value


def test_synthesis(reports: Path) -> None:
    report = read_csynth(reports / "csynth.xml")
    assert (report.version, report.part, report.top) == ("2024.1", PART, "fastcar_engine")
    assert (report.target_ns, report.uncertainty_ns, report.estimated_ns) == (3.33, 0.9, 2.431)
    assert report.resources == {"lut": 70123, "ff": 61234, "dsp": 412, "bram18": 201, "uram": 40}
    assert report.available["uram"] == 64
    assert report.violations == ()
    assert report.loops == (
        Loop("fastcar_engine", "descriptors", 1, 2),
        Loop("fastcar_engine", "words", 2, None),  # within another loop, named by its tag
        Loop("quant_linear_2_2_s", "beat", 1, 12),
    )


def test_violations_of_a_synthesis(tmp_path: Path) -> None:
    path = tmp_path / "csynth.xml"
    path.write_text(vendor.CSYNTH.format(version="2022.2", part=PART, issue="II Violation"))
    assert read_csynth(path).violations == ("quant_linear_2_2_s, loop beat: II Violation at quant_linear.h:70",)


def test_cosim(reports: Path) -> None:
    report = read_cosim(reports / "cosim.rpt")
    assert (report.status, report.latency, report.total) == ("Pass", (4100, 5200, 6300), 15600)
    path = edited(reports, "cosim.rpt", "Pass", "Fail")
    assert read_cosim(path).status == "Fail"
    assert "no row of a simulated language" in refused(read_cosim, edited(reports, "cosim.rpt", "Fail", "NA")).found


def test_utilization(reports: Path) -> None:
    report, used, available = read_utilization(reports / "utilization_placed.rpt")
    assert (report.design, report.version) == (DESIGN, "2024.1")
    assert used == {"lut": 81234, "ff": 90210, "dsp": 420, "bram36": 101.5, "uram": 40}
    assert available == {"lut": 117120, "ff": 234240, "dsp": 1248, "bram36": 144, "uram": 64}


def test_a_device_without_ultraram(reports: Path) -> None:
    path = edited(reports, "utilization_placed.rpt", "| URAM              |", "| Other             |")
    _, used, available = read_utilization(path)
    assert used["uram"] == available["uram"] == 0


def test_timing(reports: Path) -> None:
    report, timing = read_timing(reports / "timing_summary_routed.rpt")
    assert report.design == DESIGN
    assert (timing.setup_ns, timing.hold_ns, timing.pulse_ns, timing.met) == (0.042, 0.011, 0.167, True)
    clock = timing.nearest(300)
    assert (clock.name, clock.period_ns, clock.setup_ns) == ("clk_pl_0", 3.334, 0.042)
    assert clock.fmax_mhz == pytest.approx(1e3 / 3.292)
    assert timing.nearest(100).fmax_mhz is None  # no path


@pytest.mark.parametrize("slack", ["-0.089", "-12.000"])
def test_timing_that_is_not_met(tmp_path: Path, slack: str) -> None:
    path = tmp_path / "timing.rpt"
    path.write_text(vendor.head("report_timing_summary", DESIGN, PART) + vendor.TIMING.format(setup=slack))
    _, timing = read_timing(path)
    assert timing.setup_ns == float(slack) and not timing.met
    assert timing.nearest(300).fmax_mhz < 299.94


def test_power(reports: Path) -> None:
    _, power = read_power(reports / "power_routed.rpt")
    assert power == Power(7.125, 6.501, 0.624, 41.3, "Medium")
    path = edited(reports, "power_routed.rpt", "7.125        ", "97.1 (Junction temp exceeded!)")
    assert read_power(path)[1].total == 97.1


def test_figures_that_nothing_can_be_divided_by(reports: Path) -> None:
    assert Clock("clk", 5.0, 5.0, None).fmax_mhz is None
    path = edited(reports, "timing_summary_routed.rpt", "3.334 ", "0.000 ")
    assert refused(read_timing, path).found == "clock clk_pl_0 has a period of 0"


@pytest.mark.parametrize("encoding", ["no-such", "utf-7", "big5"])
def test_encodings_that_are_not_read(reports: Path, encoding: str) -> None:
    path = reports / "csynth.xml"
    body = path.read_text().split("?>", 1)[-1]
    path.write_text(f'<?xml version="1.0" encoding="{encoding}"?>{body}')
    assert "is not XML" in refused(read_csynth, path).found


def test_design_rules(reports: Path) -> None:
    assert read_drc(reports / "drc_routed.rpt")[1] == Drc({"Warning": 2, "Advisory": 1}, ())
    path = edited(reports, "drc_routed.rpt", "Advisory", "Error")
    assert read_drc(path)[1].errors == ("AVAL-4: enum_USE_DPORT_FALSE",)
    path = edited(reports, "drc_routed.rpt", "Violations found: 3", "Checks found: 3")
    assert read_drc(path)[1].by_severity == {"Warning": 2, "Error": 1}
    found = refused(read_drc, edited(reports, "drc_routed.rpt", "found: 3", "found: 4")).found
    assert found == "4 violations found, 3 in its table"


def test_routes(reports: Path) -> None:
    assert read_route(reports / "route_status.rpt") == Route(141234, 141234, 0)


@pytest.mark.parametrize("name", READERS)
def test_missing(tmp_path: Path, name: str) -> None:
    assert refused(READERS[name], tmp_path / name).found == "no such file or directory"


@pytest.mark.parametrize("part", [0.0, 0.3, 0.6])
@pytest.mark.parametrize("name", READERS)
def test_cut_short(reports: Path, name: str, part: float) -> None:
    path = reports / name
    text = path.read_text()
    path.write_text(text[: int(part * len(text))])
    refused(READERS[name], path)


@pytest.mark.parametrize("name", READERS)
def test_of_something_else(reports: Path, name: str) -> None:
    other = "csynth.xml" if name != "csynth.xml" else "power_routed.rpt"
    (reports / name).write_bytes((reports / other).read_bytes() + b"\xff\xfe")
    refused(READERS[name], reports / name)


def test_of_another_command(reports: Path) -> None:
    path = edited(reports, "power_routed.rpt", "report_power", "report_clocks")
    assert refused(read_power, path).found == "was written by report_clocks"


@pytest.mark.parametrize(
    ("name", "old", "new", "found"),
    [
        ("csynth.xml", "<LUT>70123</LUT>", "", "has no AreaEstimates/Resources/LUT"),
        ("csynth.xml", "<LUT>70123</LUT>", "<LUT>many</LUT>", "AreaEstimates/Resources/LUT is 'many'"),
        ("csynth.xml", "<LUT>70123</LUT>", "<LUT>\u00b2</LUT>", "Resources/LUT is '\u00b2'"),
        ("csynth.xml", "<LUT>70123</LUT>", f"<LUT>{'9' * 5000}</LUT>", "Resources/LUT is '999"),
        ("csynth.xml", ">2.431<", ">undef<", "EstimatedClockPeriod is 'undef'"),
        ("csynth.xml", "<PipelineII>2<", "<PipelineII>undef<", "PipelineII is 'undef'"),
        ("utilization_placed.rpt", "CLB LUTs ", "Slice LUTs", "has no row 'CLB LUTs'"),
        ("utilization_placed.rpt", "| 81234 ", "| many  ", "CLB LUTs is 'many'"),
        ("timing_summary_routed.rpt", "Clock Summary", "Clocks", "has no section 'Clock Summary'"),
        ("power_routed.rpt", "Dynamic (W)", "Motion (W)", "has no row 'Dynamic (W)'"),
        ("route_status.rpt", "# of nets with routing errors", "# of nets", "has no line"),
    ],
)
def test_damaged(reports: Path, name: str, old: str, new: str, found: str) -> None:
    assert found in refused(READERS[name], edited(reports, name, old, new)).found
