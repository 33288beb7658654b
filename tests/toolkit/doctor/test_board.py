"""A KV260 in order has no problem; each fault alone is found, by its line and its fix."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from fake_board import MEMORY, write, write_hwmon
from machines import XMUTIL, Make, answers, one

from fastcar.toolkit.doctor import examine
from fastcar.toolkit.doctor.identity import identify
from fastcar.toolkit.doctor.machine import Machine

IN_ORDER = {
    "Python": "3.10.12",
    "fastcar-edge 0.1.0": "numpy 1.26.4, click 8.5.1, tomli 2.5.0",
    "generation on a board, or on an emulated one": "onnxruntime 1.20.1, pynq 4.0.0",
    "board": "kv260, by $BOARD (ZynqMP SMK-K26 Rev1/B/A)",
    "permissions": "root",
    "XILINX_XRT": "/usr",
    "zocl": "loaded, /dev/dri/renderD128",
    "XRT": "2.13.0",
    "FPGA manager": "operating: a bitstream is loaded",
    "firmware": "no application of the board's own is loaded",
    "UIO devices": "axi-pmon, fabric",
    "clocks of the logic": "pl0_ref 299.997 MHz",
    "contiguous memory": "958 MiB free of 1000 MiB",
    "memory": "3053 MiB available",
    "disk": "20,480 MiB free here",
    "temperature": "41 degrees Celsius",
    "power sensors": "total: ina260_u14 (hwmon), 4.81 W now",
}


def test_in_order(kria: Make) -> None:
    found = examine(kria())
    assert (found.machine, found.name, found.problems) == ("board", "kv260", 0)
    assert {check.name: check.found for check in found.checks if check.status == "ok"} == IN_ORDER
    assert {check.status for check in found.checks} == {"ok"}


FAULTS = {
    "no root": ({"user": 1000}, None, "permissions", "/dev/mem", "sudo -i"),
    "no XILINX_XRT": ({"environment": {"BOARD": "KV260"}}, None, "XILINX_XRT", "not set", "export XILINX_XRT=/usr"),
    "XILINX_XRT elsewhere": (
        {"environment": {"BOARD": "KV260", "XILINX_XRT": "/opt/xilinx/xrt"}},
        None,
        "XILINX_XRT",
        "no libxrt_core.so",
        "apt-get install xrt",
    ),
    "no runtime": ({}, "usr/lib/libxrt_core.so.2", "XILINX_XRT", "no libxrt_core.so", "apt-get install xrt"),
    "no zocl": ({}, "proc/modules", "zocl", "not loaded", "modprobe zocl"),
    "no render node": ({}, "dev/dri/renderD128", "zocl", "no /dev/dri/renderD*", "pynq_venv.sh"),
    "no FPGA manager": ({}, "sys/class/fpga_manager", "FPGA manager", "no bitstream can be loaded", "kernel"),
    "FPGA manager of another kernel": (
        {},
        "sys/class/fpga_manager/fpga0/firmware",
        "FPGA manager",
        "by which PYNQ knows a device",
        "kernel",
    ),
    "no meminfo": ({}, "proc/meminfo", "contiguous memory", "can allocate nothing", "CONFIG_CMA"),
    "full disk": ({"disk_free": lambda path: 1 << 20}, None, "disk", "1 MiB free", "Free some space"),
    "Python 3.9": ({"python": (3, 9, 2)}, None, "Python", "3.9.2", "Python 3.10 to 3.12"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_fault(kria: Make, fault: str) -> None:
    changed, removed, name, found, fix = FAULTS[fault]
    machine = kria(**changed)
    if removed:
        place = machine.root / removed
        shutil.rmtree(place) if place.is_dir() else place.unlink()
    examined = examine(machine)
    check = one(examined, name)
    assert check.status == "problem" and found in check.found and fix in check.fix, check
    assert examined.problems == 1


def test_zocl_among_the_modules_is_a_whole_word(kria: Make) -> None:
    machine = kria()
    write(machine.root, "proc/modules", "not_zocl 1 0 - Live 0x0\n")
    assert one(examine(machine), "zocl").status == "problem"
    write(machine.root, "sys/module/zocl/refcnt", "0")
    assert one(examine(machine), "zocl").status == "ok"


@pytest.mark.parametrize(
    ("state", "status", "text"),
    [("unknown", "ok", "no bitstream yet"), ("write error", "problem", "was not loaded")],
)
def test_state_of_the_logic(kria: Make, state: str, status: str, text: str) -> None:
    machine = kria()
    write(machine.root, "sys/class/fpga_manager/fpga0/state", state + "\n")
    check = one(examine(machine), "FPGA manager")
    assert check.status == status and text in check.found


def test_no_contiguous_memory_was_reserved(kria: Make) -> None:
    machine = kria()
    write(machine.root, "proc/meminfo", MEMORY.replace("1024000", "0").replace("981120", "0"))
    examined = examine(machine)
    check = one(examined, "contiguous memory")
    assert check.status == "problem" and "CmaTotal is 0" in check.found and "cma=512M" in check.fix
    assert examined.problems == 1


def test_little_memory(kria: Make) -> None:
    machine = kria()
    write(machine.root, "proc/meminfo", MEMORY.replace("3126024", "120000"))
    check = one(examine(machine), "memory")
    assert check.status == "problem" and check.found == "117 MiB available" and "End other programs" in check.fix


@pytest.mark.parametrize(("celsius", "status"), [(84.9, "ok"), (85, "note"), (99.9, "note"), (100, "problem")])
def test_temperature(kria: Make, celsius: float, status: str) -> None:
    machine = kria()
    write(machine.root, "sys/class/thermal/thermal_zone1/temp", f"{celsius * 1000:.0f}\n")
    write(machine.root, "sys/class/thermal/thermal_zone2/temp", "-273150\n")
    check = one(examine(machine), "temperature")
    assert check.status == status and ("fan" in check.fix) == (status != "ok")


@pytest.mark.parametrize("value", ["-273150", "255000", "", "x"])
def test_a_temperature_that_no_device_has(kria: Make, value: str) -> None:
    machine = kria()
    write(machine.root, "sys/class/thermal/thermal_zone0/temp", value)
    assert one(examine(machine), "temperature").found == "no sensor tells it"
    write_hwmon(machine.root, 4, "ams", temp1_input=52_500)
    assert one(examine(machine), "temperature").found == "52 degrees Celsius"


@pytest.mark.parametrize("slot", ["0,", "0->0"])
def test_an_application_of_the_board_is_loaded(kria: Make, slot: str) -> None:
    said = answers({"xmutil listapps": XMUTIL.format(slot=slot)})
    check = one(examine(kria(run=said)), "firmware")
    assert check.status == "note" and check.found == "k26-starter-kits is loaded"
    assert "sudo xmutil unloadapp" in check.fix


def test_what_is_not_told_is_a_note(kria: Make) -> None:
    machine = kria(run=lambda command: None)
    for path in ("sys/class/uio", "sys/kernel", "sys/class/thermal", "sys/class/hwmon"):
        shutil.rmtree(machine.root / path)
    examined = examine(machine)
    assert examined.problems == 0
    names = ("XRT", "firmware", "UIO devices", "clocks of the logic", "temperature", "power sensors")
    assert {one(examined, name).status for name in names} == {"note"}
    assert "uio_pdrv_genirq.of_id=generic-uio" in one(examined, "UIO devices").fix


def test_version_of_the_package_where_the_tool_is_missing(kria: Make) -> None:
    said = {"dpkg-query -W -f ${Version} xrt": "202210.2.13.466-0ubuntu1"}
    assert one(examine(kria(run=answers(said))), "XRT").found == "202210.2.13"


def test_a_board_that_is_not_known(kria: Make) -> None:
    machine = kria(environment={"XILINX_XRT": "/usr"})
    for path in ("etc/xocl.txt", "proc/device-tree/compatible"):
        (machine.root / path).unlink()
    examined = examine(machine)
    check = one(examined, "board")
    assert examined.machine == "board" and examined.name is None
    assert check.status == "note" and "SMK-K26" in check.found and "Set BOARD" in check.fix


@pytest.mark.parametrize(
    ("files", "environment", "architecture", "board"),
    [
        ({"proc/device-tree/model": "ZynqMP ZCU102 Rev1.0\0"}, {}, "aarch64", "zcu102"),
        ({"proc/device-tree/model": "ZynqMP ZCU104 RevC\0"}, {"BOARD": "ZCU104"}, "aarch64", "zcu104"),
        ({"proc/device-tree/model": "Avnet Ultra96-V2 Rev1\0"}, {}, "aarch64", "ultra96v2"),
        ({"proc/device-tree/model": "ZynqMP SMK-K26 Rev1/B/A\0", "etc/xocl.txt": "KR260"}, {}, "aarch64", "kr260"),
        (
            {
                "proc/device-tree/model": "ZynqMP SMK-K26 Rev1/B/A\0",
                "proc/device-tree/compatible": "xlnx,zynqmp-sk-kr260-revB\0xlnx,zynqmp\0",
            },
            {},
            "aarch64",
            "kr260",
        ),
        ({"proc/device-tree/model": "A board of one's own\0"}, {"BOARD": "kv260"}, "aarch64", "kv260"),
        ({"proc/device-tree/model": "Raspberry Pi 5 Model B\0"}, {}, "aarch64", "workstation"),
        ({"proc/device-tree/model": "ZynqMP ZCU102 Rev1.0\0"}, {}, "x86_64", "workstation"),
        ({}, {"BOARD": "KV260"}, "aarch64", "workstation"),
        ({}, {}, "x86_64", "workstation"),
    ],
)
def test_which_machine(tmp_path: Path, files: dict, environment: dict, architecture: str, board: str) -> None:
    for path, content in files.items():
        write(tmp_path, path, content)
    found = identify(Machine(root=tmp_path, environment=environment, architecture=architecture))
    assert (found.board if found else "workstation") == board


def test_power_of_several_rails(kria: Make) -> None:
    machine = kria()
    write_hwmon(machine.root, 0, "ina226_u76", power1_input=1_000_000)
    write_hwmon(machine.root, 1, "ina226_u79", power1_input=500_000)
    (machine.root / "sys/class/hwmon/hwmon0/in1_input").unlink()
    check = one(examine(machine), "power sensors")
    assert check.found == "sum of the measured rails: ina226_u76, ina226_u79 (hwmon), 1.50 W now"
