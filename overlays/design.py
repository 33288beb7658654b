"""The block design around an engine: instances, addresses, clock and interrupt, in one place for all that need them."""

from __future__ import annotations

from dataclasses import dataclass

from ..boards import Board, load_board
from ..toolkit.program.memory import PORTS
from ..toolkit.program.register_map import ADDRESS_RANGE
from .load import Engine

__all__ = ["ENGINE", "INTERRUPTS", "PROCESSOR", "RESET", "VLNV", "BlockDesign", "block_design", "build_id_of_name"]

PREFIX = "fastcar_"
ENGINE, INTERRUPTS, RESET, PROCESSOR = "engine", "engine_interrupts", "engine_reset", "processor"
# Names of instances; pynq.Overlay has a method of its own called reset.
VLNV = {
    ENGINE: "fastcar:hls:fastcar_engine:1.0",
    INTERRUPTS: "xilinx.com:ip:axi_intc:4.1",
    RESET: "xilinx.com:ip:axi_gpio:2.0",
    PROCESSOR: "xilinx.com:ip:zynq_ultra_ps_e:3.5",
}
ADDRESSES = {ENGINE: 0xA000_0000, INTERRUPTS: 0xA001_0000, RESET: 0xA002_0000}
READS = tuple(f"m_axi_read{port}" for port in range(PORTS))
OTHERS = ("m_axi_program", "m_axi_cache")
SHARED = "S_AXI_HPC1_FPD"


@dataclass(frozen=True)
class BlockDesign:
    """``build_id``: of the engine; it is in the design's name, so handoff and bitstream carry it.

    The engine's interrupt goes through an AXI interrupt controller, which is where PYNQ looks for it; a GPIO bit holds
    the engine, and it alone, in reset, so that an engine that hangs can be used again without a new download.
    """

    board: Board
    engine: str
    build_id: int
    clock_mhz: float

    @property
    def name(self) -> str:
        return f"{PREFIX}{self.build_id:08x}"

    @property
    def slaves(self) -> dict[str, tuple[int, int]]:
        """(base address, range in bytes) by instance."""
        return {instance: (base, ADDRESS_RANGE) for instance, base in ADDRESSES.items()}

    @property
    def memory_ports(self) -> dict[str, str]:
        """The processor's port behind each of the engine's masters.

        Each read port has one of the board's to itself, and with it a port of the memory controller. Program and cache
        share the one that is left: they move few beats, but the engine waits for them, and behind a read port's queue
        of sixteen bursts they would wait long. A board with fewer ports shares those it has.
        """
        names = self.board.ports.names[:PORTS]
        reads = {master: names[port % len(names)] for port, master in enumerate(READS)}
        shared = SHARED if SHARED not in names else names[-1]
        return reads | dict.fromkeys(OTHERS, shared)


def block_design(engine: Engine) -> BlockDesign:
    config = engine.config
    return BlockDesign(load_board(engine.board), config.name, config.build_id, config.clock_mhz)


def build_id_of_name(name: str) -> int | None:
    """The build id in the name of a design of this project, or of the top level wrapped around it; else None."""
    digits = name.removeprefix(PREFIX)[:8]
    try:
        return int(digits, 16) if name.startswith(PREFIX) and len(digits) == 8 else None
    except ValueError:
        return None
