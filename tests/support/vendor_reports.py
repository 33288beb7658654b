"""Reports as the vendor's tools write them: their form, cut to what matters, with figures of the tests' own."""

from __future__ import annotations

from pathlib import Path

__all__ = ["COSIM", "CSYNTH", "DRC", "POWER", "ROUTE", "TIMING", "UTILIZATION", "head", "write_reports"]

CSYNTH = """\
<profile>
  <ReportVersion><Version>{version}</Version></ReportVersion>
  <UserAssignments>
    <unit>ns</unit>
    <Part>{part}</Part>
    <TopModelName>fastcar_engine</TopModelName>
    <TargetClockPeriod>3.33</TargetClockPeriod>
    <ClockUncertainty>0.90</ClockUncertainty>
    <FlowTarget>vivado</FlowTarget>
  </UserAssignments>
  <PerformanceEstimates>
    <PipelineType>no</PipelineType>
    <SummaryOfTimingAnalysis><unit>ns</unit><EstimatedClockPeriod>2.431</EstimatedClockPeriod></SummaryOfTimingAnalysis>
    <SummaryOfOverallLatency><Best-caseLatency>undef</Best-caseLatency></SummaryOfOverallLatency>
    <SummaryOfLoopLatency>
      <descriptors>
        <Name>descriptors</Name><TripCount>16</TripCount><Latency>17</Latency>
        <PipelineII>1</PipelineII><PipelineDepth>2</PipelineDepth>
      </descriptors>
      <nodes>
        <TripCount>undef</TripCount><IterationLatency>undef</IterationLatency>
        <words><TripCount>4</TripCount><PipelineII>2</PipelineII><PipelineDepth>undef</PipelineDepth></words>
      </nodes>
    </SummaryOfLoopLatency>
  </PerformanceEstimates>
  <AreaEstimates>
    <Resources><BRAM_18K>201</BRAM_18K><DSP>412</DSP><FF>61234</FF><LUT>70123</LUT><URAM>40</URAM></Resources>
    <AvailableResources>
      <BRAM_18K>288</BRAM_18K><DSP>1248</DSP><FF>234240</FF><LUT>117120</LUT><URAM>64</URAM>
    </AvailableResources>
  </AreaEstimates>
  <ModuleInformation>
    <Module>
      <Name>quant_linear_2_2_s</Name>
      <PerformanceEstimates>
        <SummaryOfLoopLatency>
          <beat><Name>beat</Name><TripCount>undef</TripCount><PipelineII>1</PipelineII>
            <PipelineDepth>12</PipelineDepth></beat>
        </SummaryOfLoopLatency>
        <SummaryOfViolations>
          <IssueType>-</IssueType><ViolationType>-</ViolationType><SourceLocation>-</SourceLocation>
          <SummaryOfLoopViolations>
            <beat><Name>beat</Name><IssueType>{issue}</IssueType><ViolationType>-</ViolationType>
              <SourceLocation>quant_linear.h:70</SourceLocation></beat>
          </SummaryOfLoopViolations>
        </SummaryOfViolations>
      </PerformanceEstimates>
      <AreaEstimates><Resources><LUT>9000</LUT></Resources></AreaEstimates>
    </Module>
  </ModuleInformation>
</profile>
"""

COSIM = """\
Report time       : Wed Dec  2 12:00:00 2026.
Solution          : solution1.
Simulation tool   : xsim.

+----------+----------+-----------------------------------+-----------------------------------+----------------------+
|          |          |       Latency(Clock Cycles)       |       Interval(Clock Cycles)      | Total Execution Time |
+   RTL    +  Status  +-----------------------------------+-----------------------------------+    (Clock Cycles)    +
|          |          |    min    |    avg    |    max    |    min    |    avg    |    max    |                      |
+----------+----------+-----------------------------------+-----------------------------------+----------------------+
|      VHDL|        NA|         NA|         NA|         NA|         NA|         NA|         NA|                    NA|
|   Verilog|      {status}|     4100|       5200|       6300|         NA|         NA|         NA|                 15600|
+----------+----------+-----------------------------------+-----------------------------------+----------------------+
"""

HEAD = """\
Copyright 1986-2022 Xilinx, Inc. All Rights Reserved.
---------------------------------------------------------------------------
| Tool Version : Vivado v.{version} (lin64) Build 3671981 Fri Oct 14 04:59:54 MDT 2022
| Date         : Wed Dec  2 12:00:00 2026
| Host         : host running 64-bit Ubuntu 22.04
| Command      : {command} -file report.rpt -pb report.pb
| Design       : {design}
| Device       : {part}
| Design State : Routed
---------------------------------------------------------------------------

"""

UTILIZATION = """\
1. CLB Logic
------------

+----------------------------+-------+-------+------------+-----------+-------+
|          Site Type         |  Used | Fixed | Prohibited | Available | Util% |
+----------------------------+-------+-------+------------+-----------+-------+
| CLB LUTs                   | 81234 |     0 |          0 |    117120 | 69.36 |
|   LUT as Logic             | 70000 |     0 |          0 |    117120 | 59.77 |
| CLB Registers              | 90210 |     0 |          0 |    234240 | 38.51 |
+----------------------------+-------+-------+------------+-----------+-------+

3. BLOCKRAM
-----------

+-------------------+-------+-------+------------+-----------+-------+
|     Site Type     |  Used | Fixed | Prohibited | Available | Util% |
+-------------------+-------+-------+------------+-----------+-------+
| Block RAM Tile    | 101.5 |     0 |          0 |       144 | 70.49 |
|   RAMB36/FIFO*    |   100 |     0 |          0 |       144 | 69.44 |
| URAM              |    40 |     0 |          0 |        64 | 62.50 |
+-------------------+-------+-------+------------+-----------+-------+

4. ARITHMETIC
-------------

+----------------+------+-------+------------+-----------+-------+
|    Site Type   | Used | Fixed | Prohibited | Available | Util% |
+----------------+------+-------+------------+-----------+-------+
| DSPs           |  420 |     0 |          0 |      1248 | 33.65 |
+----------------+------+-------+------------+-----------+-------+
"""

SLACKS = (
    "WNS(ns)      TNS(ns)  TNS Failing Endpoints  TNS Total Endpoints      WHS(ns)      THS(ns)  "
    "THS Failing Endpoints  THS Total Endpoints     WPWS(ns)     TPWS(ns)  TPWS Failing Endpoints  TPWS Total Endpoints"
)
RULE = "-" * 96
TIMING = f"""\
Timing Summary Report

{RULE}
| Timer Settings
| --------------
{RULE}

  Enable Multi Corner Analysis               :  Yes

{RULE}
| Design Timing Summary
| ---------------------
{RULE}

    {SLACKS}
    -------      -------  ---------------------  -------------------      -------      -------
      {{setup}}      0.000                      0               301234        0.011        0.000                      0\
               301234        0.167        0.000                       0                91234


All user specified timing constraints are met.


{RULE}
| Clock Summary
| -------------
{RULE}

Clock     Waveform(ns)         Period(ns)      Frequency(MHz)
-----     ------------         ----------      --------------
clk_pl_0  {{{{0.000 1.667}}}}        3.334           299.940
clk_slow  {{{{0.000 5.000}}}}        10.000          100.000


{RULE}
| Intra Clock Table
| -----------------
{RULE}

Clock             {SLACKS}
-----             -------      -------
clk_pl_0          {{setup}}      0.000                      0               301234        0.011        0.000           \
           0               301234        0.167        0.000                       0                91234
clk_slow               NA           NA                     NA                   NA           NA           NA           \
          NA                   NA        3.500        0.000                       0                    4


{RULE}
| Inter Clock Table
| -----------------
{RULE}
"""

POWER = """\
1. Summary
----------

+--------------------------+--------------+
| Total On-Chip Power (W)  | 7.125        |
| Design Power Budget (W)  | Unspecified* |
| Power Budget Margin (W)  | NA           |
| Dynamic (W)              | 6.501        |
| Device Static (W)        | 0.624        |
| Junction Temperature (C) | 41.3         |
| Confidence Level         | Medium       |
| Setting File             | ---          |
+--------------------------+--------------+
"""

DRC = """\
Report DRC

Table of Contents
-----------------
1. REPORT SUMMARY
2. REPORT DETAILS

1. REPORT SUMMARY
-----------------
            Netlist: netlist
          Floorplan: design_1
      Design limits: <entire design considered>
           Ruledeck: default
             Max checks: <unlimited>
             Violations found: 3
+--------+------------------+----------------------------+------------+
| Rule   | Severity         | Description                | Violations |
+--------+------------------+----------------------------+------------+
| DPIP-2 | Warning          | Input pipelining           | 2          |
| AVAL-4 | {severity} | enum_USE_DPORT_FALSE       | 1          |
+--------+------------------+----------------------------+------------+

2. REPORT DETAILS
-----------------
DPIP-2#1 Warning
"""

ROUTE = """\
Design Route Status
                                               :      # nets :
   ------------------------------------------- : ----------- :
   # of logical nets.......................... :      201234 :
       # of nets not needing routing.......... :       60000 :
       # of routable nets..................... :      141234 :
           # of fully routed nets............. :      141234 :
       # of nets with routing errors.......... :           0 :
   ------------------------------------------- : ----------- :
"""


def head(command: str, design: str, part: str, version: str = "2022.2") -> str:
    return HEAD.format(command=command, design=design, part=part, version=version)


def write_reports(folder: Path, design: str, part: str, version: str = "2022.2") -> None:
    """Every report of a routed design whose top level is ``design``, and those of Vitis HLS."""
    top = lambda command: head(command, design, part, version)
    texts = {
        "csynth.xml": CSYNTH.format(version=version, part=part, issue="-"),
        "cosim.rpt": COSIM.format(status="Pass"),
        "utilization_placed.rpt": top("report_utilization") + UTILIZATION,
        "timing_summary_routed.rpt": top("report_timing_summary") + TIMING.format(setup="0.042"),
        "power_routed.rpt": top("report_power") + POWER,
        "drc_routed.rpt": top("report_drc") + DRC.format(severity="Advisory"),
        "route_status.rpt": ROUTE,
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / name).write_text(text, "utf-8")
