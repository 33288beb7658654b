"""A whole build with the scripts as they are, run by tclsh with the recorder in the place of the vendor's commands."""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path

import pytest
import vendor_reports as vendor
from fake_vendor import tool_script
from tcl_runs import RECORDER, REPORTS

from fastcar.overlays.bitfile import write_emulated_bitfile
from fastcar.overlays.flow import layout
from fastcar.overlays.flow.choose import choose_engine
from fastcar.overlays.flow.collect import read_overlay
from fastcar.overlays.flow.errors import PhaseError
from fastcar.overlays.flow.layout import Build
from fastcar.overlays.flow.plan import Choice
from fastcar.overlays.flow.run import run
from fastcar.overlays.flow.tools import find_tools
from fastcar.overlays.hwh import handoff_text

pytestmark = pytest.mark.skipif(not (shutil.which("tclsh") and shutil.which("dtc")), reason="no tclsh or no dtc")
NAMES = {
    "utilization.rpt": "utilization_placed.rpt",
    "timing.rpt": "timing_summary_routed.rpt",
    "power.rpt": "power_routed.rpt",
    "drc.rpt": "drc_routed.rpt",
    "route_status.rpt": "route_status.rpt",
    "csynth.xml": "csynth.xml",
}
# The recorder leaves empty files: checkpoints get a content, bitstream and handoff that of the build.
BODY = """\
for last; do :; done
{environment} tclsh {recorder} {kind} "$last" || exit 1
find . -type f -size 0 ! -name lock ! -path './logs/*' -exec sh -c 'echo made > "$1"' - {{}} ';'
case "$last" in *bitstream.tcl) cp {products}/fastcar.bit {products}/fastcar.hwh artifacts/ ;; esac
"""


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Build:
    """Of a KV260, with tools on the path that are tclsh."""
    build = Build(*choose_engine("kv260", None, {}), tmp_path / "built")
    written, products = tmp_path / "written", tmp_path / "products"
    vendor.write_reports(tmp_path / "reports", f"{build.design.name}_wrapper", build.board.device.part)
    shutil.copytree(REPORTS, written)
    for name, own in NAMES.items():
        shutil.copy(tmp_path / "reports" / own, written / name)
    products.mkdir()
    write_emulated_bitfile(products / "fastcar.bit", build.design)
    (products / "fastcar.hwh").write_text(handoff_text(build.design))
    values = {
        "RECORD": tmp_path / "record",
        "REPORTS": written,
        "FAIL": "",
        "STATUS": "Complete",
        "PROGRESS": "100%",
        "MHZ": build.design.clock_mhz,
        "BOARD_PARTS": build.board.device.board_part,
    }
    environment = " ".join(f"{name}='{value}'" for name, value in values.items())
    for tool, kind in (("vitis_hls", "hls"), ("vivado", "vivado")):
        body = BODY.format(environment=environment, recorder=shlex.quote(str(RECORDER)), kind=kind, products=products)
        tool_script(tmp_path / "bin" / tool, f"{tool} v2023.2 (64-bit)" if tool == "vivado" else "v2023.2", body)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    return build


def test_the_scripts_take_the_flow_to_its_end(build: Build) -> None:
    record = run(build, find_tools(), Choice(), lambda stage, done, total: None)
    assert all(step["ran"] for step in record)
    overlay = read_overlay(build.folder)
    assert overlay["build_id"] == f"{build.engine.config.build_id:08x}"
    assert set(overlay["artifacts"]) == {f"fastcar.{suffix}" for suffix in ("bit", "hwh", "xsa", "dts", "dtbo")}
    again = run(build, find_tools(), Choice(), lambda stage, done, total: None)
    assert [step["phase"] for step in again if step["ran"]] == ["configure", "collect"]


def test_a_project_in_a_folder_that_the_tools_stumble_over(
    build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are told of a link to it, in the build's folder."""
    odd = tmp_path / "an odd $folder [1]"
    odd.symlink_to(layout.ROOT.resolve(), target_is_directory=True)
    monkeypatch.setattr(layout, "ROOT", odd)
    assert build.package == build.folder / "package"
    run(build, find_tools(), Choice(), lambda stage, done, total: None)
    wrapper = build.log("csim").with_suffix(".tcl").read_text()
    assert "odd" not in wrapper and f"{build.folder}/package/overlays/tcl/csim.tcl" in wrapper
    assert build.package.resolve() == odd.resolve()
    build.link_package()
    build.package.unlink()
    build.package.symlink_to(tmp_path)
    build.link_package()
    assert build.package.resolve() == odd.resolve()


def test_a_gate_of_a_script_stops_the_flow(build: Build, tmp_path: Path) -> None:
    report = tmp_path / "written/timing.rpt"
    report.write_text(report.read_text().replace("0.042", "-0.042"))
    with pytest.raises(PhaseError, match=r"ERROR: timing: timing missed: setup slack -0.042 ns") as caught:
        run(build, find_tools(), Choice(), lambda stage, done, total: None)
    assert caught.value.subject == "timing"
    assert not build.artifact(".bit").exists()
