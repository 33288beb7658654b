"""The files by which a board is known, below a folder: a KV260 with Ubuntu 22.04 and PYNQ, in order."""

from __future__ import annotations

from pathlib import Path

__all__ = ["write", "write_hwmon", "write_kria"]

MEMORY = """\
MemTotal:        4013052 kB
MemFree:         2817240 kB
MemAvailable:    3126024 kB
CmaTotal:        1024000 kB
CmaFree:          981120 kB
"""


def write(root: Path, path: str, content: str = "") -> Path:
    """A file below ``root``, with the folders on the way."""
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content)
    return file


def write_hwmon(root: Path, number: int, name: str, **values: object) -> Path:
    """A sensor chip; ``values``: its files, such as power1_input=4_809_000."""
    folder = f"sys/class/hwmon/hwmon{number}"
    write(root, f"{folder}/name", f"{name}\n")
    for file, value in values.items():
        write(root, f"{folder}/{file}", f"{value}\n")
    return root / folder


def write_kria(root: Path) -> Path:
    """A device tree's texts end in a zero byte."""
    write(root, "proc/device-tree/model", "ZynqMP SMK-K26 Rev1/B/A\0")
    write(root, "proc/device-tree/compatible", "xlnx,zynqmp-sk-kv260-rev1\0xlnx,zynqmp-smk-k26-rev1\0xlnx,zynqmp\0")
    write(root, "etc/xocl.txt", "KV260\n")
    write(root, "proc/meminfo", MEMORY)
    write(root, "proc/modules", "zocl 184320 0 - Live 0x0000000000000000\nuio_pdrv_genirq 20480 0 - Live 0x0\n")
    write(root, "dev/dri/renderD128")
    write(root, "sys/class/fpga_manager/fpga0/state", "operating\n")
    write(root, "sys/class/fpga_manager/fpga0/firmware")
    write(root, "sys/class/uio/uio0/name", "axi-pmon\n")
    write(root, "sys/class/uio/uio1/name", "fabric\n")
    write(root, "sys/kernel/debug/clk/pl0_ref/clk_rate", "299997009\n")
    write(root, "sys/class/thermal/thermal_zone0/temp", "41200\n")
    write(root, "usr/lib/libxrt_core.so.2")
    write_hwmon(root, 0, "ina260_u14", in1_input=5052, curr1_input=952, power1_input=4_810_000)
    return root
