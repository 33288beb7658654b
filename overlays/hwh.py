"""The hardware handoff (.hwh) of a block design: written for the emulated device, read before a download.

Vivado writes this file when it generates a block design; PYNQ finds IPs, addresses, registers and interrupts in it.
The one written here has what PYNQ's parser needs and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from ..toolkit.errors import OverlayError
from ..toolkit.program.register_map import Register, engine_registers
from .bitfile import regular_size
from .design import ENGINE, INTERRUPTS, PROCESSOR, RESET, VLNV, BlockDesign

__all__ = ["Handoff", "handoff_text", "read_handoff"]

VIVADO_VERSION = "2024.1"  # the form of the file is that version's
ENGINE_SLAVE, INTERRUPTS_SLAVE, RESET_SLAVE = "s_axi_control", "s_axi", "S_AXI"
MASTER = "M_AXI_HPM0_FPD"
MASTERS = ("m_axi_program", "m_axi_read0", "m_axi_read1", "m_axi_read2", "m_axi_read3", "m_axi_cache")
CLOCK = "PSU__CRL_APB__PL0_REF_CTRL__ACT_FREQMHZ"
LARGEST = 64 << 20  # bytes; those of full designs have some MB, and all of it is held in memory
IO_PLL_MHZ = 1500  # what the divisors below divide


def handoff_text(design: BlockDesign, vivado: str = VIVADO_VERSION) -> str:
    """The file's text."""
    root = Element("EDKSYSTEM", EDWVERSION="1.2", VIVADOVERSION=vivado)
    device, package, *_ = design.board.device.part.split("-")
    SubElement(root, "SYSTEMINFO", ARCH="zynquplus", DEVICE=device, NAME=design.name, PACKAGE=package)
    SubElement(root, "EXTERNALPORTS")
    SubElement(root, "EXTERNALINTERFACES")
    modules = SubElement(root, "MODULES")
    _processor(modules, design)
    _interrupt_controller(modules)
    _reset(modules)
    _engine(modules, design)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8" standalone="no" ?>\n' + ElementTree.tostring(root, "unicode") + "\n"


def _processor(modules: Element, design: BlockDesign) -> None:
    module = _module(modules, PROCESSOR, "zynq_ultra_ps_e")
    parameters = SubElement(module, "PARAMETERS")
    divisor = round(IO_PLL_MHZ / design.clock_mhz)
    for clock in range(4):
        prefix = f"PSU__CRL_APB__PL{clock}_REF_CTRL__"
        values = {
            f"PSU__FPGA_PL{clock}_ENABLE": int(clock == 0),
            prefix + "DIVISOR0": divisor,
            prefix + "DIVISOR1": 1,
            prefix + "SRCSEL": "IOPLL",
            prefix + "ACT_FREQMHZ": f"{IO_PLL_MHZ / divisor:.6f}",
        }
        for name, value in values.items():
            SubElement(parameters, "PARAMETER", NAME=name, VALUE=str(value))
    SubElement(parameters, "PARAMETER", NAME="C_MAXIGP0_DATA_WIDTH", VALUE="128")
    _ports(module, [("pl_ps_irq0", "I", (INTERRUPTS, "irq"))])
    slaves = (*design.board.ports.names, *([] if len(design.board.ports.names) > 4 else ["S_AXI_HPC1_FPD"]))
    _interfaces(module, {MASTER: "MASTER", **dict.fromkeys(slaves, "SLAVE")})
    memory = SubElement(module, "MEMORYMAP")
    names = {ENGINE: ENGINE_SLAVE, INTERRUPTS: INTERRUPTS_SLAVE, RESET: RESET_SLAVE}
    for instance, (base, size) in design.slaves.items():
        _range(memory, instance, names[instance], MASTER, base, size, "REGISTER")


def _interrupt_controller(modules: Element) -> None:
    module = _module(modules, INTERRUPTS, "axi_intc")
    _ports(module, [("intr", "I", (ENGINE, "interrupt")), ("irq", "O", (PROCESSOR, "pl_ps_irq0"))])
    _interfaces(module, {INTERRUPTS_SLAVE: "SLAVE"})


def _reset(modules: Element) -> None:
    module = _module(modules, RESET, "axi_gpio")
    parameters = SubElement(module, "PARAMETERS")
    for name, value in (("C_GPIO_WIDTH", "1"), ("C_ALL_OUTPUTS", "1"), ("C_DOUT_DEFAULT", "0x00000001")):
        SubElement(parameters, "PARAMETER", NAME=name, VALUE=value)
    _interfaces(module, {RESET_SLAVE: "SLAVE"})


def _engine(modules: Element, design: BlockDesign) -> None:
    module = _module(modules, ENGINE, "fastcar_engine")
    blocks = SubElement(module, "ADDRESSBLOCKS")
    size = design.slaves[ENGINE][1]
    block = SubElement(blocks, "ADDRESSBLOCK", INTERFACE=ENGINE_SLAVE, NAME="Reg", RANGE=str(size), USAGE="register")
    registers = SubElement(block, "REGISTERS")
    for register in engine_registers():
        _register(registers, register)
    _ports(module, [("interrupt", "O", (INTERRUPTS, "intr"))])
    _interfaces(module, {ENGINE_SLAVE: "SLAVE", **dict.fromkeys(MASTERS, "MASTER")})
    memory = SubElement(module, "MEMORYMAP")
    reads = dict(zip(MASTERS[1:5], design.board.ports.names, strict=False))
    for master in MASTERS:
        port = reads.get(master, "S_AXI_HPC1_FPD")
        _range(memory, PROCESSOR, port, master, 0, 0x8000_0000, "MEMORY")


def _module(modules: Element, instance: str, kind: str) -> Element:
    fixed = {"FULLNAME": f"/{instance}", "INSTANCE": instance, "MODTYPE": kind, "VLNV": VLNV[instance]}
    return SubElement(modules, "MODULE", {**fixed, "IS_PL": "FALSE" if instance == PROCESSOR else "TRUE"})


def _ports(module: Element, ports: list[tuple[str, str, tuple[str, str]]]) -> None:
    parent = SubElement(module, "PORTS")
    for name, direction, (instance, other) in ports:
        port = SubElement(parent, "PORT", NAME=name, DIR=direction, SIGIS="INTERRUPT")
        SubElement(SubElement(port, "CONNECTIONS"), "CONNECTION", INSTANCE=instance, PORT=other)


def _interfaces(module: Element, interfaces: dict[str, str]) -> None:
    parent = SubElement(module, "BUSINTERFACES")
    for name, kind in interfaces.items():
        SubElement(parent, "BUSINTERFACE", NAME=name, TYPE=kind, VLNV="xilinx.com:interface:aximm:1.0")


def _range(parent: Element, instance: str, slave: str, master: str, base: int, size: int, kind: str) -> None:
    SubElement(
        parent,
        "MEMRANGE",
        ADDRESSBLOCK="Reg" if kind == "REGISTER" else f"{slave}_DDR_LOW",
        BASEVALUE=f"0x{base:08X}",
        HIGHVALUE=f"0x{base + size - 1:08X}",
        INSTANCE=instance,
        MASTERBUSINTERFACE=master,
        MEMTYPE=kind,
        SLAVEBUSINTERFACE=slave,
    )


def _register(parent: Element, register: Register) -> None:
    element = SubElement(parent, "REGISTER", NAME=register.name)
    _property(element, "DESCRIPTION", register.about)
    _property(element, "ADDRESS_OFFSET", register.offset)
    _property(element, "SIZE", 32)
    _property(element, "ACCESS", register.access)
    _property(element, "IS_ENABLED", "true")
    fields = SubElement(element, "FIELDS")
    for field in register.fields:
        part = SubElement(fields, "FIELD", NAME=field.name)
        _property(part, "ACCESS", field.access)
        _property(part, "BIT_OFFSET", field.bit)
        _property(part, "BIT_WIDTH", field.width)


def _property(parent: Element, name: str, value: object) -> None:
    SubElement(parent, "PROPERTY", NAME=name, VALUE=str(value))


@dataclass(frozen=True)
class Handoff:
    """What a .hwh says of the engine: ``registers`` offset by name, empty where the design has no engine."""

    path: Path
    design: str
    engines: tuple[str, ...]  # instances
    clock_mhz: float | None  # of the first clock of the processor for the fabric
    registers: dict[str, int]


def read_handoff(path: Path) -> Handoff:
    """OverlayError if the file is missing or no handoff."""
    expected = "the hardware handoff Vivado writes beside the bitstream"
    fix = "Copy the .hwh of the same build beside the .bit, under the same name."
    try:
        if (size := regular_size(path)) > LARGEST:
            raise OverlayError(path, f"has {size} bytes", f"{expected}, of {LARGEST >> 20} MiB at most", fix)
        root = ElementTree.parse(path).getroot()
    except OSError as error:
        raise OverlayError(path, (error.strerror or str(error)).lower(), expected, fix) from error
    except (ElementTree.ParseError, LookupError, ValueError) as error:  # the latter two: an encoding Python lacks
        raise OverlayError(path, f"is not XML ({error})", expected, fix) from error
    system = root.find("SYSTEMINFO")
    if root.tag != "EDKSYSTEM" or system is None:
        raise OverlayError(path, f"its root is <{root.tag}>", expected, fix)
    modules = root.findall("./MODULES/MODULE")
    engines = [module for module in modules if module.get("VLNV", "").startswith(VLNV[ENGINE].rpartition(":")[0])]
    try:
        registers = {
            register.get("NAME", ""): int(_value(register, "ADDRESS_OFFSET"), 0)
            for module in engines[:1]
            for register in module.iter("REGISTER")
        }
        clock = _clock(modules)
    except ValueError as error:
        raise OverlayError(path, f"holds what is no number ({error})", "offsets and a clock", fix) from error
    instances = tuple(module.get("INSTANCE", "") for module in engines)
    return Handoff(path, system.get("NAME", ""), instances, clock, registers)


def _clock(modules: list[Element]) -> float | None:
    """What Vivado reached; None where the file does not say."""
    for module in modules:
        for parameter in module.iter("PARAMETER"):
            if parameter.get("NAME") == CLOCK:
                return float(parameter.get("VALUE", "nan"))
    return None


def _value(element: Element, name: str) -> str:
    return next((part.get("VALUE", "0") for part in element.findall("PROPERTY") if part.get("NAME") == name), "0")
