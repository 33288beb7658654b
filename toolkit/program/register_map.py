"""The engine's AXI-Lite registers with their offsets: for the driver, the emulated device and the hardware handoff.

Offsets follow Vitis HLS (UG1399, "S_AXILITE Control Register Map" and "S_AXILITE Offset Option"): block control in the
first four words, then the arguments in order, each its words and one more. The tool numbers the words of an argument
from 1 and calls the word behind an output ``_ctrl``. That it lays out a struct of this length so was not seen, as the
tool could not be run: the driver takes offsets from the hardware handoff, by name.
"""

from __future__ import annotations

from dataclasses import dataclass

from .registers import CONTROL, REPORT
from .words import Record

__all__ = ["ADDRESS_RANGE", "CTRL", "GIER", "IP_IER", "IP_ISR", "POINTERS", "Field", "Register", "engine_registers"]

POINTERS = (
    "program",
    *(f"weights{port}" for port in range(4)),
    *(f"state{port}" for port in range(4)),
    "tables",
    "state",
)
"""Arguments of the engine that are addresses, in order; 64 bits, in bytes."""

ADDRESS_RANGE = 0x1_0000  # of the AXI-Lite slave
CTRL, GIER, IP_IER, IP_ISR = 0x0, 0x4, 0x8, 0xC
ARGUMENTS = 0x10
READ_WRITE, READ_ONLY = "read-write", "read-only"


@dataclass(frozen=True)
class Field:
    """Bits of a register."""

    name: str
    bit: int
    width: int
    access: str


@dataclass(frozen=True)
class Register:
    """One 32-bit word of the slave at ``offset`` bytes. ``word``: the field of CONTROL or REPORT it holds, if any."""

    name: str
    offset: int
    access: str
    about: str
    fields: tuple[Field, ...] = ()
    word: str | None = None


BLOCK_CONTROL = (
    Register(
        "CTRL",
        CTRL,
        READ_WRITE,
        "Control signals",
        (
            Field("AP_START", 0, 1, READ_WRITE),
            Field("AP_DONE", 1, 1, READ_ONLY),  # cleared by reading it
            Field("AP_IDLE", 2, 1, READ_ONLY),
            Field("AP_READY", 3, 1, READ_ONLY),
            Field("AUTO_RESTART", 7, 1, READ_WRITE),
            Field("INTERRUPT", 9, 1, READ_ONLY),
        ),
    ),
    Register("GIER", GIER, READ_WRITE, "Global interrupt enable", (Field("Enable", 0, 1, READ_WRITE),)),
    Register(
        "IP_IER",
        IP_IER,
        READ_WRITE,
        "Interrupt enable",
        (Field("CHAN0_INT_EN", 0, 1, READ_WRITE), Field("CHAN1_INT_EN", 1, 1, READ_WRITE)),
    ),
    Register(
        "IP_ISR",
        IP_ISR,
        READ_WRITE,
        "Interrupt status; writing a 1 toggles it",
        (Field("CHAN0_INT_ST", 0, 1, READ_WRITE), Field("CHAN1_INT_ST", 1, 1, READ_WRITE)),
    ),
)


def engine_registers() -> tuple[Register, ...]:
    """Every register, in ascending order of offsets."""
    registers, offset = list(BLOCK_CONTROL), ARGUMENTS
    for pointer in POINTERS:
        for half in (0, 1):
            about = f"Address of {pointer}, bits {32 * half + 31} to {32 * half}"
            registers.append(Register(f"{pointer}_{half + 1}", offset + 4 * half, READ_WRITE, about))
        offset += 12
    control = _words("control", CONTROL, offset, READ_WRITE)
    offset = control[-1].offset + 8
    report = _words("report", REPORT, offset, READ_ONLY)
    valid = Field("report_ap_vld", 0, 1, READ_ONLY)
    end = Register("report_ctrl", report[-1].offset + 4, READ_ONLY, "Whether the report was written", (valid,))
    return (*registers, *control, *report, end)


def _words(argument: str, record: Record, offset: int, access: str) -> list[Register]:
    return [
        Register(f"{argument}_{index + 1}", offset + 4 * index, access, word.about, word=word.name)
        for index, word in enumerate(record.words)
    ]
