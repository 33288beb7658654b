"""A device tree overlay for the bitstream: for boards whose system loads overlays by itself, such as Ubuntu on Kria.

It is **not** needed with PYNQ: ``pynq.Overlay`` programs the bitstream and sets the clocks as the .hwh says, makes the
.xclbin it wants from the .hwh when none lies beside the .bit, and Kria-PYNQ brings a device tree overlay of its own
with zocl and interrupts. This one is for loading without PYNQ, by ``xmutil loadapp`` or ``fpgautil``: firmware name,
widths of the ports, clock, and a userspace I/O device for each of engine, interrupt controller and reset. PYNQ
programs nothing then: ``Overlay(..., download=False)``.

``firmware-name`` is the bitstream as the FPGA manager takes it (.bit.bin): ``bootgen -arch zynqmp -process_bitstream
bin`` makes it from fastcar.bit. ``generic-uio`` devices need ``uio_pdrv_genirq.of_id=generic-uio`` at boot. Modelled
on the overlays of Xilinx/kria-apps-firmware; compiled here, loaded on no board.
"""

from __future__ import annotations

import json

from ...toolkit.errors import OverlayError
from ...toolkit.output import replacing
from ..design import ENGINE, INTERRUPTS, RESET
from ..hwh import read_handoff
from .layout import NAME, Build

__all__ = ["FILES", "compiler_arguments", "device_tree_text", "needed", "write_device_tree"]

SOURCE, COMPILED, SHELL = f"{NAME}.dts", f"{NAME}.dtbo", "shell.json"
FILES = (SOURCE, COMPILED, SHELL)
KRIA = "xck"  # what the parts of Kria modules begin with
PL0_CLOCK, PL0_RESET = 71, 116
"""Numbers of the first clock and the reset of the fabric in the bindings xlnx-zynqmp-clk.h and xlnx-zynqmp-resets.h."""
INTERRUPT = "0 89 4"
"""pl_ps_irq0[0]: shared peripheral interrupt 89 (121 of the GIC), level, high (UG1085, system interrupts)."""
WIDTHS = [(register, 0) for register in range(14)] + [(14, 0xA00), (15, 0)]
"""AFI registers: 0 to 13 read and write width of the slave ports, 0 is 128 bit; 14 the two master ports, 128 bit."""

TEXT = """\
/dts-v1/;
/plugin/;

&fpga_full {{
\t#address-cells = <2>;
\t#size-cells = <2>;
\tfirmware-name = "{firmware}";
\tresets = <&zynqmp_reset {reset}>;
}};

&amba {{
\t#address-cells = <2>;
\t#size-cells = <2>;
\tafi0: afi0 {{
\t\tcompatible = "xlnx,afi-fpga";
\t\tconfig-afi = {widths};
\t}};
\tclocking0: clocking0 {{
\t\tcompatible = "xlnx,fclk";
\t\t#clock-cells = <0>;
\t\tclocks = <&zynqmp_clk {clock}>;
\t\tassigned-clocks = <&zynqmp_clk {clock}>;
\t\tassigned-clock-rates = <{hertz}>;
\t\tclock-output-names = "fabric_clk";
\t}};
{devices}
}};
"""
DEVICE = """\
\t{label}: {label}@{base:x} {{
\t\tcompatible = "generic-uio";
\t\treg = <0x0 0x{base:08x} 0x0 0x{size:x}>;
\t\tclocks = <&zynqmp_clk {clock}>;{interrupt}
\t}};"""
INTERRUPT_LINES = "\n\t\tinterrupt-parent = <&gic>;\n\t\tinterrupts = <{}>;"


def needed(build: Build) -> bool:
    """Whether the board's own system takes device tree overlays."""
    return build.board.device.part.lower().startswith(KRIA)


def write_device_tree(build: Build) -> None:
    """Source, and the description dfx-mgr wants; OverlayError if the handoff does not say the clock."""
    handoff = build.artifact(".hwh")
    clock_mhz = read_handoff(handoff).clock_mhz
    if clock_mhz is None or not 1 <= clock_mhz <= 1000:
        found, fix = f"clock of the fabric {clock_mhz} MHz", "Run --from bitstream."
        raise OverlayError(handoff, found, "the frequency Vivado reached", fix)
    with replacing(build.artifacts / SOURCE) as partial:
        partial.write_text(device_tree_text(build, clock_mhz), "utf-8")
    with replacing(build.artifacts / SHELL) as partial:
        partial.write_text(json.dumps({"shell_type": "XRT_FLAT", "num_slots": "1"}) + "\n", "utf-8")


def device_tree_text(build: Build, clock_mhz: float) -> str:
    """``clock_mhz``: what Vivado reached of the clock that was asked for."""
    devices = []
    for label in (ENGINE, INTERRUPTS, RESET):
        base, size = build.design.slaves[label]
        interrupt = INTERRUPT_LINES.format(INTERRUPT) if label == INTERRUPTS else ""
        devices.append(DEVICE.format(label=label, base=base, size=size, clock=PL0_CLOCK, interrupt=interrupt))
    return TEXT.format(
        firmware=f"{NAME}.bit.bin",
        reset=PL0_RESET,
        widths=", ".join(f"<{register} {value:#x}>" for register, value in WIDTHS),
        clock=PL0_CLOCK,
        hertz=round(clock_mhz * 1e6),
        devices="\n".join(devices),
    )


def compiler_arguments(build: Build) -> list[str]:
    """``-@`` keeps the symbols of an overlay."""
    output, source = str(build.artifacts / COMPILED), str(build.artifacts / SOURCE)
    return ["-@", "-q", "-I", "dts", "-O", "dtb", "-o", output, source]
