"""Whatever goes wrong in a phase ends it with exit 1 and one sentence that says what."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tcl_runs import PHASES, Flow, Outcome

Finished = tuple[Flow, dict[str, Outcome]]

SUMMARY = "      0.031        0.000                      0               310000        0.010        0.000"
PULSE = "0.427        0.000                       0"
BURST = "|- burst    |        ?|        ?|        12|          1|          1|"
DRC = "| DPIP-2   | Warning          | Input pipelining            | 2          |"

CASES = [
    ("csim", "csim.log", "done with 0 errors", "done with 1 errors", "C simulation failed or did not end; see "),
    ("csim", "csim.log", "INFO: [SIM 1] CSim done with 0 errors.", "", "C simulation failed or did not end; see "),
    (
        "csynth",
        "csynth.xml",
        "<EstimatedClockPeriod>2.433",
        "<EstimatedClockPeriod>2.510",
        "clock missed: 2.510 ns estimated, 2.430 ns allowed (period 3.33 ns less 0.90 ns uncertainty)",
    ),
    (
        "csynth",
        "csynth.xml",
        "<ClockUncertainty>0.90",
        "<ClockUncertainty>1.00",
        "clock missed: 2.433 ns estimated, 2.330",
    ),
    ("csynth", "csynth.xml", "EstimatedClockPeriod>2.433</Estimated", "Other>2.433</", None),
    ("csynth", "csynth.xml", "<IssueType>-", "<IssueType>Timing Violation", "Timing Violation at ports.h:50; see "),
    ("csynth", "csynth.xml", "<ViolationType>-", "<ViolationType>Resource Limitation", "Resource Limitation at ports"),
    (
        "csynth",
        "csynth.xml",
        "<Name>burst</Name>\n                            <IssueType>-",
        "<Name>burst</Name>\n                            <IssueType>II Violation",
        "II Violation at ports.h:53; see ",
    ),
    (
        "csynth",
        "read_port_csynth.rpt",
        BURST,
        BURST.replace("         1|          1|", "         2|          1|"),
        "II missed: loop burst achieves 2, target 1; see ",
    ),
    (
        "cosim",
        "cosim.rpt",
        "|   Verilog|      Pass|",
        "|   Verilog|      Fail|",
        "co-simulation: RTL and C++ differ or",
    ),
    (
        "cosim",
        "cosim.rpt",
        "|   Verilog|      Pass|",
        "|   Verilog|        NA|",
        "co-simulation: RTL and C++ differ or",
    ),
    ("cosim", "cosim.rpt", "Verilog", "SystemC", None),
    (
        "implementation",
        "drc.rpt",
        DRC,
        DRC.replace("Warning", "Error  "),
        "design rule DPIP-2 violated 2 times (Input pipelining); see ",
    ),
    ("implementation", "drc.rpt", "Violations found: 3", "", None),
    (
        "implementation",
        "route_status.rpt",
        "fully routed nets............. :      150000",
        "fully routed nets............. :      149993",
        "7 nets unrouted, 0 with errors, of 150000; see ",
    ),
    (
        "implementation",
        "route_status.rpt",
        "errors.......... :           0",
        "errors.......... :           4",
        "0 nets unrouted, 4 with errors, of 150000; see ",
    ),
    ("implementation", "route_status.rpt", "# of routable nets", "# of nets", None),
    (
        "timing",
        "timing.rpt",
        SUMMARY,
        SUMMARY.replace(" 0.031", "-0.031"),
        "timing missed: setup slack -0.031 ns; see ",
    ),
    ("timing", "timing.rpt", SUMMARY, SUMMARY.replace(" 0.010", "-0.010"), "timing missed: hold slack -0.010 ns; see "),
    ("timing", "timing.rpt", PULSE, "-" + PULSE, "timing missed: pulse width slack -0.427 ns; see "),
    (
        "timing",
        "timing.rpt",
        SUMMARY,
        SUMMARY.replace("0.031        0.000", "   NA           NA"),
        "no path is constrained",
    ),
    ("timing", "timing.rpt", SUMMARY, "", None),
]


@pytest.mark.parametrize(("phase", "report", "old", "new", "said"), CASES)
def test_a_report_that_does_not_pass(
    phase: str, report: str, old: str, new: str, said: str | None, copy: Callable[[], Flow]
) -> None:
    """``said`` None: the report has not what the gate looks for, and is named."""
    flow = copy()
    text = (flow.reports / report).read_text()
    assert old in text
    (flow.reports / report).write_text(text.replace(old, new, 1 if said else -1))
    done = flow.run(phase)
    assert done.code == 1
    assert done.error.startswith(f"ERROR: {phase}: {said or flow.folder}"), done.error
    assert done.error.count("\n") == 1 and f"{phase}: done" not in done.out


@pytest.mark.parametrize("phase", PHASES)
def test_a_command_that_fails_is_the_last(phase: str, finished: Finished, copy: Callable[[], Flow]) -> None:
    flow = copy()
    names = dict.fromkeys(command[0] for command in finished[1][phase].commands)
    for name in names:
        done = flow.run(phase, FAIL=name)
        assert done.code == 1, name
        assert done.error == f"ERROR: {phase}: ERROR: [Tool 1-1] {name} failed\n"
        assert done.commands[-1][0] == name and "and more about it" in done.out


@pytest.mark.parametrize("phase", ["synthesis", "implementation", "bitstream"])
def test_a_run_that_fails(phase: str, copy: Callable[[], Flow]) -> None:
    done = copy().run(phase, STATUS="place_design ERROR", PROGRESS="40%")
    run = "synth_1" if phase == "synthesis" else "impl_1"
    assert done.code == 1
    assert done.error.startswith(f'ERROR: {phase}: run {run} ended with "place_design ERROR"; see runme.log in ')
    assert done.commands[-1][0] in ("get_property", "get_runs")


def test_a_board_that_vivado_does_not_know(copy: Callable[[], Flow]) -> None:
    done = copy().run("block_design", BOARD_PARTS="")
    assert done.code == 1 and not done.of("create_bd_design")
    assert done.error.startswith("ERROR: block_design: Vivado has no files of the board xilinx.com:kv260_som:part0:")


@pytest.mark.parametrize("made", ["250.000000", "333.333008", ""])
def test_a_clock_that_the_processor_cannot_make(made: str, copy: Callable[[], Flow]) -> None:
    done = copy().run("block_design", MHZ=made)
    assert done.code == 1 and not done.of("generate_target")
    assert done.error.startswith(f'ERROR: block_design: the processor makes "{made}" MHz of the 300 MHz wanted;')


def test_loops_that_are_not_pipelined_have_no_target(copy: Callable[[], Flow]) -> None:
    flow = copy()
    reached, none = "         1|          1|     {}|       yes|", "         -|          -|     {}|        no|"
    flow.change("read_port_csynth.rpt", reached.format("?"), none.format("?"))
    assert flow.run("csynth").code == 0
    flow.change("fastcar_engine_csynth.rpt", reached.format(4), none.format(4))
    done = flow.run("csynth")
    assert done.code == 1 and "no pipelined loop in 2 reports" in done.error
