"""What a build writes itself: configuration, device tree, overlay.json; and what it refuses to collect."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from fake_vendor import FakeVendor

from fastcar.hls.resources import estimate, placement, total
from fastcar.overlays import load_engine
from fastcar.overlays.bitfile import write_emulated_bitfile
from fastcar.overlays.flow.choose import OPTIONS, choose_engine
from fastcar.overlays.flow.collect import collect, describe, read_overlay
from fastcar.overlays.flow.configure import FILES, configure
from fastcar.overlays.flow.device_tree import compiler_arguments, device_tree_text, needed, write_device_tree
from fastcar.overlays.flow.errors import ReportError
from fastcar.overlays.flow.layout import Build, default_folder
from fastcar.overlays.flow.plan import Choice
from fastcar.overlays.flow.run import run
from fastcar.overlays.flow.tools import find_tools
from fastcar.overlays.hwh import handoff_text
from fastcar.overlays.load import engine_text
from fastcar.toolkit.errors import OverlayError, UsageError
from fastcar.toolkit.program.engine import DepthCapacity, EngineConfig


@pytest.fixture
def built(build: Build, vendor: FakeVendor) -> Build:
    run(build, find_tools(), Choice(), lambda stage, done, total: None)
    return build


def test_options_cover_the_configuration() -> None:
    assert set(OPTIONS) == set(EngineConfig.model_fields) - {"name", "depth"}
    assert OPTIONS["clock_mhz"] == "--clock" and OPTIONS["weight_fifo_beats"] == "--weight-fifo-beats"


def test_a_changed_option_is_an_engine_of_its_own(tmp_path: Path) -> None:
    engine, board = choose_engine("kv260", None, {"groups": 1, "clock_mhz": 250.0, "rows": 2})
    assert engine.config.name == "kv260-groups1-clockmhz250"
    assert engine.config.build_id != load_engine("kv260").config.build_id
    build = Build(engine, board, tmp_path / "built")
    configure(build)
    again = load_engine(build.config / "engine.toml")
    assert (again.config, again.board) == (engine.config, "kv260")
    assert {path.name for path in build.config.iterdir()} == set(FILES)
    assert f"0x{engine.config.build_id:08X}" in (build.config / "config.h").read_text()
    assert default_folder(engine).name == f"{engine.config.name}-{engine.config.build_id:08x}"


def test_an_engine_with_depth_transformers(tmp_path: Path) -> None:
    """From a file, changed by an option, and read back from the build."""
    engine = load_engine("zcu102")
    depth = DepthCapacity(layers=6, codes_per_position=4, code_dim=256)
    deep = engine.model_copy(update={"config": engine.config.model_copy(update={"name": "deep", "depth": depth})})
    file = tmp_path / "deep.toml"
    file.write_text(engine_text(deep), "utf-8")
    changed, board = choose_engine(None, str(file), {"groups": 4})
    assert changed.config.depth == depth and changed.config.name == "deep-groups4"
    assert changed.config.build_id not in (deep.config.build_id, engine.config.build_id)
    build = Build(changed, board, tmp_path / "built")
    configure(build)
    assert load_engine(build.config / "engine.toml").config == changed.config
    assert json.loads((build.config / "engine.json").read_text())["config"]["depth"] == depth.model_dump()
    constants = (build.config / "config.h").read_text()
    for name, value in (("MAX_DEPTH_LAYERS", 6), ("MAX_DEPTH_CODES", 4), ("MAX_CODE_DIM", 256)):
        assert f"constexpr int {name} = {value};" in constants


def test_arrays_that_have_to_move_are_told_to_the_synthesis(tmp_path: Path) -> None:
    """As the estimate that let the engine pass has them."""
    changes = {"max_group": 4, "max_hidden": 2048, "max_mlp": 5632, "max_codes": 1024, "vector": 4}
    changes |= {"max_head_dim": 64, "max_slots": 2112, "weight_fifo_beats": 8192, "max_kv_heads": 4, "max_layers": 22}
    engine, board = choose_engine("kv260", None, changes)
    bound = placement(engine.config, board)
    assert bound and placement(load_engine("kv260").config, board) == {}
    build = Build(engine, board, tmp_path / "built")
    configure(build)
    lines = (build.config / "directives.tcl").read_text().splitlines()
    assert [line.split()[4:] for line in lines[1:]] == [
        [kind, '"Executor::Executor"', name] for name, kind in bound.items()
    ]


def test_the_engine_of_another_board(tmp_path: Path) -> None:
    engine, board = choose_engine("kr260", "kv260", {})
    assert (engine.board, board.name, engine.config.name) == ("kr260", "kr260", "kv260")
    with pytest.raises(UsageError, match="an estimate of"):
        choose_engine("kv260", "zcu102", {})
    assert choose_engine(None, "zcu104-batch", {})[1].name == "zcu104"


@pytest.mark.parametrize(
    ("board", "engine", "changes", "subject"),
    [
        (None, None, {}, "--board"),
        ("u280", "kv260", {}, "u280"),
        ("ultra96v2", None, {}, "--engine"),
        ("kv999", None, {}, "board"),
        ("kv260", None, {"groups": 99}, "--groups"),
        ("kv260", None, {"clock_mhz": -1.0}, "--clock"),
        ("kv260", None, {"vector": 3}, "engine"),
        ("kv260", None, {"groups": 16}, "engine kv260-groups16 on kv260"),
    ],
)
def test_engines_that_cannot_be_built(board, engine, changes, subject: str) -> None:
    with pytest.raises(UsageError) as caught:
        choose_engine(board, engine, changes)
    assert caught.value.subject == subject


def test_a_board_of_a_file(tmp_path: Path) -> None:
    """Its place is kept in full, so that the engine file works from anywhere."""
    import fastcar.boards

    board = tmp_path / "mine.toml"
    shutil.copy(Path(fastcar.boards.__file__).parent / "kv260.toml", board)
    engine, target = choose_engine(str(board), "kv260", {})
    build = Build(engine, target, tmp_path / "built")
    configure(build)
    assert load_engine(build.config / "engine.toml").board == str(board)


def test_device_tree_text(build: Build) -> None:
    text = device_tree_text(build, 299.997)
    assert 'firmware-name = "fastcar.bit.bin";' in text and "assigned-clock-rates = <299997000>;" in text
    for name, (base, size) in build.design.slaves.items():
        assert f"{name}: {name}@{base:x} {{" in text and f"reg = <0x0 0x{base:08x} 0x0 0x{size:x}>;" in text
    assert text.count("interrupts = <0 89 4>;") == 1
    assert needed(build)
    assert not needed(Build(*choose_engine("zcu104", None, {}), build.folder))


@pytest.mark.skipif(shutil.which("dtc") is None, reason="no dtc")
def test_the_device_tree_compiles(build: Build, tmp_path: Path) -> None:
    build.artifacts.mkdir(parents=True)
    build.artifact(".hwh").write_text(handoff_text(build.design))
    write_device_tree(build)
    done = subprocess.run(["dtc", *compiler_arguments(build)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    command = ["dtc", "-I", "dtb", "-O", "dts", "-q", build.artifact(".dtbo")]
    back = subprocess.run(command, capture_output=True, text=True).stdout
    assert "generic-uio" in back and 'fpga_full = "/fragment@0:target:0";' in back
    assert json.loads((build.artifacts / "shell.json").read_text())["shell_type"] == "XRT_FLAT"


def test_a_device_tree_needs_the_clock(build: Build) -> None:
    build.artifacts.mkdir(parents=True)
    build.artifact(".hwh").write_text(handoff_text(build.design).replace("PL0_REF_CTRL__ACT_FREQMHZ", "OTHER"))
    with pytest.raises(OverlayError, match="clock of the fabric None"):
        write_device_tree(build)


def test_overlay_json(built: Build) -> None:
    record = read_overlay(built.folder)
    assert record == read_overlay(built.artifacts) == read_overlay(built.artifacts / "overlay.json")
    assert record["build_id"] == f"{built.engine.config.build_id:08x}"
    assert record["tools"] == {"hls": "2022.2", "vivado": "2022.2"}
    assert record["clock"]["fmax_mhz"] == pytest.approx(303.77, abs=0.01) and record["clock"]["met"]
    estimated = total(estimate(built.engine.config))
    assert record["resources"]["dsp"] == {"built": 420, "hls": 412, "estimated": estimated.dsp, "available": 1248}
    assert record["resources"]["ff"]["estimated"] is None
    assert record["resources"]["bram36"]["hls"] == 100.5
    assert [loop["ii"] for loop in record["loops"]] == [1, 2, 1]
    assert 3 < record["power"]["planned"] < 10
    assert record["power"]["total"] == 7.125 and "not measured" in record["power"]["source"]
    assert set(record["artifacts"]) == {f"fastcar.{suffix}" for suffix in ("bit", "hwh", "xsa", "dtbo", "dts")}


def test_artifacts_of_another_build_are_refused(built: Build) -> None:
    other = built.engine.config.model_copy(update={"groups": 1})
    design = replace(built.design, build_id=other.build_id)
    handoff, whole = built.artifact(".hwh"), built.artifact(".hwh").read_text()
    handoff.write_text(handoff_text(design))
    with pytest.raises(OverlayError, match=rf"fastcar.hwh: of design fastcar_{other.build_id:08x}"):
        describe(built)
    handoff.write_text(whole.replace('NAME="ctrl', 'NAME="other').replace('NAME="control', 'NAME="other'))
    with pytest.raises(OverlayError, match="its engine has no register"):
        describe(built)
    handoff.write_text(whole)
    write_emulated_bitfile(built.artifact(".bit"), design)
    with pytest.raises(OverlayError, match="fastcar.bit: of design"):
        collect(built)


@pytest.mark.parametrize("name", ["utilization_placed.rpt", "timing_summary_routed.rpt", "power_routed.rpt"])
def test_reports_of_another_build_are_refused(built: Build, name: str) -> None:
    path = built.reports / name
    path.write_text(path.read_text().replace(built.design.name, "fastcar_00000000"))
    with pytest.raises(ReportError, match="of design fastcar_00000000_wrapper") as caught:
        describe(built)
    assert caught.value.subject == str(path)


@pytest.mark.parametrize(
    ("name", "old", "new", "found"),
    [
        ("csynth.xml", "<Name>beat</Name><IssueType>-<", "<Name>beat</Name><IssueType>II<", "loop beat: II"),
        ("cosim.rpt", "Pass", "Fail", "status Fail"),
        ("timing_summary_routed.rpt", "0.042", "-0.31", "slack -0.31 ns"),
        ("drc_routed.rpt", "Advisory", "Error", "AVAL-4: enum_USE_DPORT_FALSE"),
        ("route_status.rpt", "nets............. :      14", "nets............. :      13", "131234 nets of 141234"),
    ],
)
def test_what_the_scripts_let_through_is_refused(built: Build, name: str, old: str, new: str, found: str) -> None:
    path = built.reports / name
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(ReportError, match="a design that passed") as caught:
        describe(built)
    assert found in caught.value.found and caught.value.subject == str(path)


def test_a_synthesis_for_another_part_is_refused(built: Build) -> None:
    path = built.reports / "csynth.xml"
    path.write_text(path.read_text().replace("xck26", "xck24"))
    with pytest.raises(ReportError, match="of part xck24"):
        describe(built)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"format": 2}'])
def test_a_damaged_overlay_json(tmp_path: Path, text: str) -> None:
    (tmp_path / "overlay.json").write_text(text)
    with pytest.raises(ReportError, match="overlay.json"):
        read_overlay(tmp_path)


def test_no_overlay_json(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="no such file"):
        read_overlay(tmp_path)
