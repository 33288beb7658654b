"""Everything a block design is made of, as lists: cells, parameters, connections and addresses.

The script that builds the design in Vivado and the emulated handoff are both written from these lists. Names of pins,
parameters and address segments are those of the vendor's IP: PG201 (processor), PG099 (interrupt controller), PG144
(GPIO), PG164 (resets), PG247 (SmartConnect), and UG1399 for the engine's.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..toolkit.errors import UsageError
from .design import ENGINE, INTERRUPTS, PROCESSOR, RESET, VLNV, BlockDesign

__all__ = ["CLOCK", "MASTER", "SLAVES", "Connections", "Segment", "connections"]

MASTER = "M_AXI_HPM0_FPD"
SLAVES = {ENGINE: "s_axi_control", INTERRUPTS: "s_axi", RESET: "S_AXI"}
"""The interface behind which an instance has its registers."""

CONTROL, RESETS, ENGINE_RESETS = "control_interconnect", "resets", "engine_resets"
SMARTCONNECT, PROC_SYS_RESET = "xilinx.com:ip:smartconnect:1.0", "xilinx.com:ip:proc_sys_reset:5.0"
CLOCK = "PSU__CRL_APB__PL0_REF_CTRL__ACT_FREQMHZ"  # what the dividers make of the clock that is wanted
MEMORY_BYTES = 0x8000_0000  # the lower DDR, where Linux keeps contiguous memory

PROCESSOR_PORTS = {
    "S_AXI_HPC0_FPD": 0,
    "S_AXI_HPC1_FPD": 1,
    "S_AXI_HP0_FPD": 2,
    "S_AXI_HP1_FPD": 3,
    "S_AXI_HP2_FPD": 4,
    "S_AXI_HP3_FPD": 5,
}
"""Number of a port in the names of the processor's parameters."""


@dataclass(frozen=True)
class Segment:
    """``size`` bytes at ``base`` of an address ``space`` lead to a slave's ``segment``; Vivado's names for both.

    ``master``, ``slave``: (instance, interface), as the handoff names them.
    """

    master: tuple[str, str]
    slave: tuple[str, str]
    space: str
    segment: str
    base: int
    size: int


@dataclass(frozen=True)
class Connections:
    """``cells``: VLNV by instance. ``parameters``: by instance, then name. Pins and interfaces are ``instance/name``.

    ``interfaces``: (master, slave). ``nets``: the pin that drives, then those it drives.
    """

    cells: dict[str, str]
    parameters: dict[str, dict[str, str]]
    interfaces: tuple[tuple[str, str], ...]
    nets: tuple[tuple[str, ...], ...]
    segments: tuple[Segment, ...]

    @property
    def ports(self) -> tuple[str, ...]:
        """The processor's memory ports in use, in the order of their numbers."""
        used = {segment.slave[1] for segment in self.segments if segment.slave[0] == PROCESSOR}
        return tuple(sorted(used, key=PROCESSOR_PORTS.__getitem__))


def connections(design: BlockDesign) -> Connections:
    """UsageError if the board's ports are none of a Zynq UltraScale+ processing system."""
    masters: dict[str, list[str]] = {}  # of each of the processor's ports
    for master, port in design.memory_ports.items():
        if port not in PROCESSOR_PORTS:
            raise UsageError(
                f"board {design.board.name}",
                f"port {port}",
                f"one of {', '.join(PROCESSOR_PORTS)}",
                "Correct the names in its file; overlays are for Zynq UltraScale+.",
            )
        masters.setdefault(port, []).append(master)
    shared = {port: f"memory_{port.split('_')[2].lower()}" for port, names in masters.items() if len(names) > 1}
    interconnects = {CONTROL: (1, len(SLAVES)), **{shared[port]: (len(masters[port]), 1) for port in shared}}
    return Connections(
        {**VLNV, **dict.fromkeys(interconnects, SMARTCONNECT), RESETS: PROC_SYS_RESET, ENGINE_RESETS: PROC_SYS_RESET},
        _parameters(design, interconnects, set(masters)),
        tuple(_interfaces(masters, shared)),
        tuple(_nets(masters, interconnects)),
        tuple(_segments(design)),
    )


def _parameters(
    design: BlockDesign, interconnects: dict[str, tuple[int, int]], used: set[str]
) -> dict[str, dict[str, str]]:
    processor = {
        "PSU__FPGA_PL0_ENABLE": "1",
        "PSU__CRL_APB__PL0_REF_CTRL__FREQMHZ": f"{design.clock_mhz:g}",
        "PSU__USE__IRQ0": "1",
        "PSU__USE__M_AXI_GP0": "1",
        "PSU__MAXIGP0__DATA_WIDTH": "128",
        "PSU__USE__M_AXI_GP1": "0",  # a preset may have them; their clocks would dangle
        "PSU__USE__M_AXI_GP2": "0",
    }
    for port, number in PROCESSOR_PORTS.items():
        processor[f"PSU__USE__S_AXI_GP{number}"] = str(int(port in used))
        if port in used:
            processor[f"PSU__SAXIGP{number}__DATA_WIDTH"] = str(design.board.ports.width_bits)
    return {
        PROCESSOR: processor,
        INTERRUPTS: {"C_IRQ_CONNECTION": "1"},  # a pin, not a bus
        RESET: {"C_GPIO_WIDTH": "1", "C_ALL_OUTPUTS": "1", "C_DOUT_DEFAULT": "0x00000001"},
        ENGINE_RESETS: {"C_AUX_RESET_HIGH": "0"},
        **{name: {"NUM_SI": str(ins), "NUM_MI": str(outs)} for name, (ins, outs) in interconnects.items()},
    }


def _interfaces(masters: dict[str, list[str]], shared: dict[str, str]) -> list[tuple[str, str]]:
    """Masters of one clock and width connect directly; those that share a port through a SmartConnect."""
    found = [(f"{PROCESSOR}/{MASTER}", f"{CONTROL}/S00_AXI")]
    found += [(f"{CONTROL}/M{index:02}_AXI", f"{name}/{slave}") for index, (name, slave) in enumerate(SLAVES.items())]
    for port, names in masters.items():
        if port in shared:
            found += [(f"{ENGINE}/{name}", f"{shared[port]}/S{index:02}_AXI") for index, name in enumerate(names)]
            found.append((f"{shared[port]}/M00_AXI", f"{PROCESSOR}/{port}"))
        else:
            found.append((f"{ENGINE}/{names[0]}", f"{PROCESSOR}/{port}"))
    return found


def _nets(masters: dict[str, list[str]], interconnects: dict[str, tuple[int, int]]) -> list[tuple[str, ...]]:
    """One clock. The engine's reset also obeys the GPIO bit, through a core that makes it last long enough."""
    registers = (INTERRUPTS, RESET)
    port_clocks = [f"{PROCESSOR}/s{port.split('_', 1)[1].replace('_', '', 1).lower()}_aclk" for port in masters]
    return [
        (
            f"{PROCESSOR}/pl_clk0",
            f"{PROCESSOR}/maxihpm0_fpd_aclk",
            *port_clocks,
            f"{ENGINE}/ap_clk",
            *(f"{name}/s_axi_aclk" for name in registers),
            *(f"{name}/aclk" for name in interconnects),
            f"{RESETS}/slowest_sync_clk",
            f"{ENGINE_RESETS}/slowest_sync_clk",
        ),
        (f"{PROCESSOR}/pl_resetn0", f"{RESETS}/ext_reset_in", f"{ENGINE_RESETS}/ext_reset_in"),
        (f"{RESETS}/interconnect_aresetn", *(f"{name}/aresetn" for name in interconnects)),
        (f"{RESETS}/peripheral_aresetn", *(f"{name}/s_axi_aresetn" for name in registers)),
        (f"{RESET}/gpio_io_o", f"{ENGINE_RESETS}/aux_reset_in"),
        (f"{ENGINE_RESETS}/peripheral_aresetn", f"{ENGINE}/ap_rst_n"),
        (f"{ENGINE}/interrupt", f"{INTERRUPTS}/intr"),
        (f"{INTERRUPTS}/irq", f"{PROCESSOR}/pl_ps_irq0"),
    ]


def _segments(design: BlockDesign) -> list[Segment]:
    found = []
    for instance, (base, size) in design.slaves.items():
        slave = SLAVES[instance]
        # The controller's interface is in small letters, its segment is not.
        block = slave if instance == ENGINE else slave.upper()
        place = f"{instance}/{block}/Reg"
        found.append(Segment((PROCESSOR, MASTER), (instance, slave), f"{PROCESSOR}/Data", place, base, size))
    for master, port in design.memory_ports.items():
        place = f"{PROCESSOR}/SAXIGP{PROCESSOR_PORTS[port]}/{port.split('_')[2]}_DDR_LOW"
        found.append(Segment((ENGINE, master), (PROCESSOR, port), f"{ENGINE}/Data_{master}", place, 0, MEMORY_BYTES))
    return found
