"""The JSON descriptions Vitis HLS takes RTL blackboxes by (UG1399, "JSON File for RTL Blackbox").

Scalars in are wires, results are written with a valid (ap_vld), streams out are FIFO ports, control is ap_ctrl_chain.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from .tools import RTL, CheckError

__all__ = ["Blackbox", "read_blackbox"]

FIELDS = frozenset(
    {
        "c_function_name",
        "rtl_top_module_name",
        "c_files",
        "rtl_files",
        "c_parameters",
        "rtl_common_signal",
        "rtl_performance",
        "rtl_resource_usage",
    }
)
# Keys of the ports of one argument; direction in front.
PROTOCOLS = {
    ("in", frozenset({"data_read_in"})),
    ("out", frozenset({"data_write_out", "data_write_valid"})),
    ("in", frozenset({"FIFO_data_read_in", "FIFO_read_enable", "FIFO_empty_flag"})),
    ("out", frozenset({"FIFO_data_write_out", "FIFO_write_enable", "FIFO_full_flag"})),
}
CONTROL = frozenset(f"ap_ctrl_chain_protocol_{signal}" for signal in ("idle", "start", "ready", "done", "continue"))
COMMON = CONTROL | {"module_clock", "module_reset", "module_clock_enable"}
RESOURCES = frozenset({"FF", "LUT", "BRAM", "URAM", "DSP"})


@dataclass(frozen=True)
class Blackbox:
    """A description: the module with its files, the C++ function with its file, ports, latency, II, resources."""

    module: str
    rtl: tuple[str, ...]
    function_file: str
    arguments: tuple[str, ...]
    ports: tuple[str, ...]
    latency: int
    interval: int
    resources: dict[str, int]


def read_blackbox(unit: str, rtl: Path = RTL) -> Blackbox:
    """CheckError where a field is missing, unknown or names a file that does not exist."""
    path = rtl / f"{unit}.json"
    text = json.loads(path.read_text("utf-8"))
    _expect(path, "fields", text, FIELDS)
    _expect(path, "rtl_common_signal", text["rtl_common_signal"], COMMON)
    _expect(path, "rtl_performance", text["rtl_performance"], frozenset({"latency", "II"}))
    _expect(path, "rtl_resource_usage", text["rtl_resource_usage"], RESOURCES)
    ports = list(text["rtl_common_signal"].values())
    for argument in text["c_parameters"]:
        protocol = (argument["c_port_direction"], frozenset(argument["rtl_ports"]))
        if protocol not in PROTOCOLS:
            raise CheckError(path, f"{argument['c_name']}: {protocol}", "one of the port protocols", "See UG1399.")
        ports += argument["rtl_ports"].values()
    if text["c_function_name"] != text["rtl_top_module_name"]:
        raise CheckError(path, "two names", "the function named as the module", "Vitis HLS binds them by name.")
    (function_file,) = (entry["c_file"] for entry in text["c_files"])
    for name in (*text["rtl_files"], function_file):
        if not (rtl / name).exists():
            raise CheckError(path, f"no {name}", "files beside it", "Correct its name.")
    return Blackbox(
        module=text["rtl_top_module_name"],
        rtl=tuple(text["rtl_files"]),
        function_file=function_file,
        arguments=tuple(argument["c_name"] for argument in text["c_parameters"]),
        ports=tuple(ports),
        latency=int(text["rtl_performance"]["latency"]),
        interval=int(text["rtl_performance"]["II"]),
        resources={name: int(number) for name, number in text["rtl_resource_usage"].items()},
    )


def _expect(path: Path, what: str, found: dict[str, object], names: frozenset[str]) -> None:
    if found.keys() != names:
        difference = ", ".join(sorted(found.keys() ^ names))
        raise CheckError(path, f"{what} differ in {difference}", ", ".join(sorted(names)), "See UG1399.")
