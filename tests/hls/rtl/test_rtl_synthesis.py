"""What the modules take of an UltraScale+ device, as Yosys maps them."""

from __future__ import annotations

from pathlib import Path

import pytest

from fastcar.hls.checks import count_cells, read_blackbox


@pytest.mark.slow
@pytest.mark.parametrize(("unit", "dsp"), [("processing_group", 16), ("drs_unit", 0)])
def test_cells(unit: str, dsp: int) -> None:
    blackbox = read_blackbox(unit)
    assert count_cells(blackbox.module, blackbox.rtl) == {"DSP48E2": dsp, "BRAM": 0, "URAM": 0}
    assert blackbox.resources["DSP"] == dsp


def test_blocks_are_counted(tmp_path: Path) -> None:
    """A product, a memory of 32 Kb and one that asks for UltraRAM: none may be overlooked."""
    access = "logic [31:0] q{0}; always_ff @(posedge clk) begin if (we) {0}[at] <= d; q{0} <= {0}[at]; end"
    body = ["logic [31:0] small[1024];", access.format("small")]
    body += ['(* ram_style = "huge" *) logic [31:0] large[4096];', access.format("large")]
    body += ["logic [31:0] p; always_ff @(posedge clk) p <= $signed(d[15:0]) * $signed(d[31:16]);"]
    body += ["assign y = qsmall ^ qlarge ^ p;"]
    ports = "input clk, input we, input [11:0] at, input [31:0] d, output [31:0] y"
    (tmp_path / "sample.sv").write_text(f"module sample({ports});\n" + "\n".join(body) + "\nendmodule\n")
    assert count_cells("sample", ["sample.sv"], rtl=tmp_path) == {"DSP48E2": 1, "BRAM": 1, "URAM": 1}
