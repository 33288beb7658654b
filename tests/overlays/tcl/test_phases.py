"""Every script under the recorder: order of the commands, files, arguments, and what is left behind."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from tcl_runs import PHASES, TCL, TOOLS, Flow, Outcome

from fastcar.overlays.connections import connections

Finished = tuple[Flow, dict[str, Outcome]]

LEFT = {
    "csim": ["hls/solution/csim/report/fastcar_engine_csim.log"],
    "csynth": ["reports/csynth.xml", "reports/csynth.rpt", "reports/modules/read_port_csynth.rpt"],
    "cosim": ["reports/cosim.rpt"],
    "export_ip": ["ip/component.xml"],
    "block_design": ["vivado/fastcar.xpr", "vivado/bitstream.xdc"],
    "synthesis": ["reports/utilization_synth.rpt", "vivado/post_synth.dcp"],
    "implementation": [
        "vivado/post_route.dcp",
        "reports/utilization_placed.rpt",
        "reports/timing_summary_routed.rpt",
        "reports/power_routed.rpt",
        "reports/drc_routed.rpt",
        "reports/route_status.rpt",
    ],
    "timing": ["reports/timing_gate.rpt"],
    "bitstream": ["artifacts/fastcar.bit", "artifacts/fastcar.hwh", "artifacts/fastcar.xsa"],
}
ORDER = {
    "csim": ["open_project", "set_top", "add_files", "open_solution", "set_part", "create_clock", "csim_design"],
    "csynth": ["open_project", "open_solution", "set_part", "create_clock", "set_clock_uncertainty", "csynth_design"],
    "cosim": ["open_project", "open_solution", "add_files", "cosim_design"],
    "export_ip": ["open_project", "open_solution", "export_design"],
    "block_design": [
        "create_project",
        "update_ip_catalog",
        "create_bd_design",
        "create_bd_cell",
        "apply_bd_automation",
        "connect_bd_intf_net",
        "connect_bd_net",
        "assign_bd_address",
        "validate_bd_design",
        "save_bd_design",
        "generate_target",
        "make_wrapper",
    ],
    "synthesis": ["open_project", "reset_runs", "launch_runs", "wait_on_runs", "open_run", "write_checkpoint"],
    "implementation": ["open_project", "reset_runs", "launch_runs", "wait_on_runs", "report_drc", "write_checkpoint"],
    "timing": ["open_checkpoint", "report_timing_summary"],
    "bitstream": ["open_project", "launch_runs", "wait_on_runs", "write_hw_platform"],
}
MADE = {"create_project", "write_checkpoint", "write_hw_platform", "open_project"}
"""Commands whose paths need not exist before; those behind -file neither."""


@pytest.mark.parametrize("phase", PHASES)
def test_commands_come_in_order(phase: str, finished: Finished) -> None:
    names = [command[0] for command in finished[1][phase].commands]
    place = -1
    for name in ORDER[phase]:
        assert name in names[place + 1 :], f"{name} after {names[max(place, 0)]}"
        place = names.index(name, place + 1)


@pytest.mark.parametrize("phase", PHASES)
def test_every_file_named_exists(phase: str, finished: Finished) -> None:
    cells = connections(finished[0].design).cells  # of a block design; their names begin with a slash too
    for name, *words in finished[1][phase].commands:
        before = ["", *words]
        missing = [
            word
            for word, option in zip(words, before, strict=False)
            if word.startswith("missing:") and option != "-file" and word.split("/")[1] not in cells
        ]
        assert not missing or name in MADE, f"{name} {missing}"
        for word in words:
            folders = re.findall(r"-I(\S+)", word)
            assert all(Path(folder).is_dir() for folder in folders)


@pytest.mark.parametrize("phase", PHASES)
def test_what_a_phase_leaves(phase: str, finished: Finished) -> None:
    folder, outcome = finished[0].folder, finished[1][phase]
    assert all((folder / path).is_file() for path in LEFT[phase])
    assert outcome.out.endswith(f"{phase}: done\n") and not outcome.error


def test_scripts_and_phases_are_the_same() -> None:
    shared = {"arguments", "gates", "hls_project", "vivado_project"}
    assert {path.stem for path in TCL.glob("*.tcl")} == set(PHASES) | shared
    assert len(TOOLS) == 9


def test_no_script_hides_an_error_or_holds_a_constant() -> None:
    for path in TCL.glob("*.tcl"):
        text = path.read_text()
        assert text.count("catch") == (path.name == "arguments.tcl"), path.name
        code = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
        assert not re.search(r"0x[0-9A-Fa-f]{4}|\bxc[kzv]\w+|S_AXI_H|m_axi|\b\d{3}\b(?!%)|3\.3", code), path.name
        assert max(map(len, text.splitlines())) <= 120


@pytest.mark.parametrize("phase", PHASES)
def test_faults_in_the_arguments(phase: str, copy: Callable[[], Flow]) -> None:
    flow = copy()
    given = flow.arguments(phase)
    words = [word for name, value in given.items() for word in (f"-{name}", value)]
    for faulty, said in (
        (words[2:], f"argument {words[0]} is missing or empty; expected -"),
        ([words[0], "", *words[2:]], f"argument {words[0]} is missing or empty"),
        ([*words, "-speed", "3"], "argument -speed is not known; expected -"),
        ([*words, *words[:2]], f"argument {words[0]} is there twice; give it once"),
        (words[:-1], f"{len(words) - 1} words in the arguments; expected pairs of -name and value"),
        (["speed", "3", *words], "argument speed is not known"),
    ):
        done = flow.run(phase, faulty)
        assert (done.code, done.commands) == (1, ())
        assert done.error.startswith(f"ERROR: {phase}: {said}") and done.error.count("\n") == 1


@pytest.mark.parametrize(
    ("phase", "lost"),
    [
        ("csim", "config/engine.golden"),
        ("csynth", "hls/solution/csim/report/fastcar_engine_csim.log"),
        ("cosim", "hls/solution/syn/report/csynth.xml"),
        ("export_ip", "hls/solution/syn/report/csynth.xml"),
        ("block_design", "ip/component.xml"),
        ("block_design", "config/design.tcl"),
        ("synthesis", "vivado/fastcar.xpr"),
        ("implementation", "vivado/fastcar.xpr"),
        ("timing", "vivado/post_route.dcp"),
        ("bitstream", "vivado/fastcar.xpr"),
    ],
)
def test_nothing_goes_on_without_what_an_earlier_phase_makes(phase: str, lost: str, copy: Callable[[], Flow]) -> None:
    flow = copy()
    (flow.folder / lost).unlink()
    done = flow.run(phase)
    assert done.code == 1 and done.error.count("\n") == 1
    assert str(flow.folder / lost) in done.error and "does not exist" in done.error
    assert not [name for name, *_ in done.commands if name.endswith("_design") or name == "launch_runs"]


def test_an_old_result_is_not_taken_for_a_new_one(copy: Callable[[], Flow]) -> None:
    """Whose simulation failed has no log of an earlier one; whose routing failed no new checkpoint."""
    flow = copy()
    assert flow.run("csim", FAIL="csim_design").code == 1
    assert "does not exist" in flow.run("csynth").error
    flow = copy()
    (flow.folder / "vivado/post_route.dcp").unlink()
    flow.change("route_status.rpt", "errors.......... :           0", "errors.......... :           2")
    assert flow.run("implementation").code == 1
    assert not (flow.folder / "vivado/post_route.dcp").exists()


def test_another_simulation_keeps_the_synthesis(copy: Callable[[], Flow]) -> None:
    flow = copy()
    for phase in ("csim", "cosim", "export_ip"):
        done = flow.run(phase)
        assert done.code == 0, done.error


def test_a_space_in_a_folder_of_headers_is_named(copy: Callable[[], Flow]) -> None:
    flow = copy()
    folder = flow.folder / "two words"
    folder.mkdir()
    arguments = flow.arguments("csim") | {"headers": f"{{{folder}}}"}
    done = flow.run("csim", [word for name, value in arguments.items() for word in (f"-{name}", value)])
    assert done.error.startswith(f"ERROR: csim: {folder} has a space")


def test_the_blackbox_is_described_and_switched_on(copy: Callable[[], Flow]) -> None:
    flow = copy()
    description = TCL.parents[1] / "hls/rtl/processing_group.json"
    arguments = flow.arguments("csynth") | {"blackbox": str(description)}
    done = flow.run("csynth", [word for name, value in arguments.items() for word in (f"-{name}", value)])
    assert done.code == 0 and ("-blackbox", str(description)) in done.of("add_files")
    assert "-DFASTCAR_RTL_BLACKBOX" in done.of("add_files")[0][2]


def test_arrays_are_bound_before_the_synthesis(finished: Finished) -> None:
    names = [name for name, *_ in finished[1]["csynth"].commands]
    assert names.index("set_directive_bind_storage") < names.index("csynth_design")
    (words,) = finished[1]["csynth"].of("set_directive_bind_storage")
    assert words == ("-type", "ram_2p", "-impl", "uram", "Executor::Executor", "attention_.scores")
    assert not finished[1]["cosim"].of("set_directive_bind_storage")


def test_only_the_simulation_simulates(finished: Finished) -> None:
    for phase in ("csim", "csynth", "cosim"):
        source, *bench = finished[1][phase].of("add_files")
        assert "FASTCAR_SIMULATION" not in source[source.index("-cflags") + 1]
        assert "-DFASTCAR_SIMULATION" in source[source.index("-csimflags") + 1]
        assert all("-tb" in words and "-DFASTCAR_SIMULATION" in words[-1] for words in bench)
        assert len(bench) == (phase != "csynth")


def test_a_bitstream_made_before_is_made_again(copy: Callable[[], Flow]) -> None:
    done = copy().run("bitstream", STATUS="write_bitstream Complete!")
    assert done.of("reset_runs") == [("impl_1", "-from_step", "write_bitstream")]
    assert not copy().run("bitstream").of("reset_runs")
