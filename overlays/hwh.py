"""The hardware handoff (.hwh) of a block design: written for the emulated device, read before a download.

Vivado writes this file when it generates a block design; PYNQ finds IPs, addresses, registers and interrupts in it.
The one written here has what PYNQ's parser needs and nothing else; what is connected to what is in ``connections``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from ..toolkit.errors import OverlayError
from ..toolkit.program.register_map import Register, engine_registers
from .bitfile import regular_size
from .connections import CLOCK, SLAVES, Connections, connections
from .design import ENGINE, INTERRUPTS, PROCESSOR, RESET, VLNV, BlockDesign

__all__ = ["Handoff", "handoff_text", "read_handoff"]

VIVADO_VERSION = "2024.1"  # the form of the file is that version's
LARGEST = 64 << 20  # bytes; those of full designs have some MB, and all of it is held in memory
KINDS = {ENGINE: "fastcar_engine", INTERRUPTS: "axi_intc", RESET: "axi_gpio", PROCESSOR: "zynq_ultra_ps_e"}
IO_PLL_MHZ = 1500  # what the divisors below divide


def handoff_text(design: BlockDesign, vivado: str = VIVADO_VERSION) -> str:
    """The file's text."""
    root = Element("EDKSYSTEM", EDWVERSION="1.2", VIVADOVERSION=vivado)
    device, package, *_ = design.board.device.part.split("-")
    SubElement(root, "SYSTEMINFO", ARCH="zynquplus", DEVICE=device, NAME=design.name, PACKAGE=package)
    SubElement(root, "EXTERNALPORTS")
    SubElement(root, "EXTERNALINTERFACES")
    modules = SubElement(root, "MODULES")
    whole = connections(design)
    for instance in (PROCESSOR, INTERRUPTS, RESET, ENGINE):
        module = _module(modules, instance)
        parameters = SubElement(module, "PARAMETERS")
        for name, value in _parameters(design, whole, instance).items():
            SubElement(parameters, "PARAMETER", NAME=name, VALUE=value)
        if instance == ENGINE:
            _registers(module, design.slaves[ENGINE][1])
        _ports(module, instance, whole)
        _interfaces(module, instance, whole)
        _memory_map(module, instance, whole)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8" standalone="no" ?>\n' + ElementTree.tostring(root, "unicode") + "\n"


def _parameters(design: BlockDesign, whole: Connections, instance: str) -> dict[str, str]:
    if instance != PROCESSOR:
        return whole.parameters.get(instance, {})
    divisor = round(IO_PLL_MHZ / design.clock_mhz)
    values = {}
    for clock in range(4):
        prefix = f"PSU__CRL_APB__PL{clock}_REF_CTRL__"
        values |= {
            f"PSU__FPGA_PL{clock}_ENABLE": str(int(clock == 0)),
            prefix + "DIVISOR0": str(divisor),
            prefix + "DIVISOR1": "1",
            prefix + "SRCSEL": "IOPLL",
            prefix + "ACT_FREQMHZ": f"{IO_PLL_MHZ / divisor:.6f}",
        }
    widths = {
        f"C_{name.removeprefix('PSU__').replace('__', '_')}": value
        for name, value in whole.parameters[PROCESSOR].items()
        if name.endswith("__DATA_WIDTH")  # PYNQ sets the ports of a running system to these
    }
    return values | widths


def _registers(module: Element, size: int) -> None:
    blocks = SubElement(module, "ADDRESSBLOCKS")
    block = SubElement(blocks, "ADDRESSBLOCK", INTERFACE=SLAVES[ENGINE], NAME="Reg", RANGE=str(size), USAGE="register")
    registers = SubElement(block, "REGISTERS")
    for register in engine_registers():
        _register(registers, register)


def _module(modules: Element, instance: str) -> Element:
    fixed = {"FULLNAME": f"/{instance}", "INSTANCE": instance, "MODTYPE": KINDS[instance], "VLNV": VLNV[instance]}
    return SubElement(modules, "MODULE", {**fixed, "IS_PL": "FALSE" if instance == PROCESSOR else "TRUE"})


def _ports(module: Element, instance: str, whole: Connections) -> None:
    """Of interrupts only: nets with one end each between the instances of the file."""
    parent = SubElement(module, "PORTS")
    for source, *sinks in whole.nets:
        ends = [tuple(pin.split("/")) for pin in (source, *sinks)]
        if len(ends) == 2 and all(owner in (ENGINE, INTERRUPTS, PROCESSOR) for owner, _ in ends):
            for (owner, name), other, direction in ((ends[0], ends[1], "O"), (ends[1], ends[0], "I")):
                if owner == instance:
                    port = SubElement(parent, "PORT", NAME=name, DIR=direction, SIGIS="INTERRUPT")
                    SubElement(SubElement(port, "CONNECTIONS"), "CONNECTION", INSTANCE=other[0], PORT=other[1])


def _interfaces(module: Element, instance: str, whole: Connections) -> None:
    parent = SubElement(module, "BUSINTERFACES")
    for pair in whole.interfaces:
        for end, kind in zip(pair, ("MASTER", "SLAVE"), strict=True):
            owner, name = end.split("/")
            if owner == instance:
                SubElement(parent, "BUSINTERFACE", NAME=name, TYPE=kind, VLNV="xilinx.com:interface:aximm:1.0")


def _memory_map(module: Element, instance: str, whole: Connections) -> None:
    memory = SubElement(module, "MEMORYMAP")
    for segment in whole.segments:
        if segment.master[0] == instance:
            SubElement(
                memory,
                "MEMRANGE",
                ADDRESSBLOCK=segment.segment.rpartition("/")[2],
                BASEVALUE=f"0x{segment.base:08X}",
                HIGHVALUE=f"0x{segment.base + segment.size - 1:08X}",
                INSTANCE=segment.slave[0],
                MASTERBUSINTERFACE=segment.master[1],
                MEMTYPE="MEMORY" if segment.slave[0] == PROCESSOR else "REGISTER",
                SLAVEBUSINTERFACE=segment.slave[1],
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
