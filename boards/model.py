"""What is known of a board. Every table of a board file names the document its values come from.

Units are part of the names: ``bytes``, ``gb_s`` 10^9 bytes per second, ``mt_s`` 10^6 transfers per second on each wire,
``clock_mhz`` 10^6 cycles per second.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, StringConstraints, model_validator

from ..toolkit.config import Frozen
from ..toolkit.errors import UsageError

__all__ = ["BEAT_BYTES", "Board", "Device", "Linux", "Memory", "Overlay", "Ports", "Resources"]

BEAT_BYTES = 16
"""Bytes of a beat: one transfer of a 128-bit AXI port, and of the overlay's weight stream."""

Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
LARGEST = (1 << 63) - 1  # of TOML's own integers; Python's parser takes longer ones, which are no float any more
Count = Annotated[int, Field(ge=0, le=LARGEST)]
Positive = Annotated[int, Field(gt=0, le=LARGEST)]
Rate = Annotated[float, Field(gt=0)]


class Table(Frozen):
    """``source``: where the values of the table come from. ``note``: what is uncertain about them."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)  # neither "117120" nor true is a number

    source: Text
    note: str = ""

    def source_of(self, key: str) -> str:
        """The source of one value: its own where it has one, otherwise the table's."""
        return getattr(self, f"{key}_source", None) or self.source


class Device(Table):
    """The FPGA and its board as Vivado names them; ``estimates_only``: no overlay is built for this board.

    ``edition``: the least of Vivado's editions that supports the part; Standard costs nothing.
    """

    title: Text
    part: Text
    board_part: Text
    estimates_only: bool = False
    edition: Literal["Standard", "Enterprise"] | None = None
    edition_source: Text | None = None

    @model_validator(mode="after")
    def _sourced(self) -> Device:
        if self.edition is not None and self.edition_source is None:
            raise ValueError("edition has no edition_source")
        return self


class Resources(Table):
    """What the device has: LUTs, flip-flops, DSP48E2 slices, block RAMs of 36 kbit, UltraRAMs of 288 kbit."""

    lut: Positive
    ff: Positive
    dsp: Positive
    bram36: Positive
    uram: Count


class Memory(Table):
    """One memory. ``fitted`` is false for a socket that the board is sold without a module for."""

    type: Text
    bytes: Positive
    bus_bits: Positive
    mt_s: Positive
    peak_gb_s: Rate
    sustained_fraction: Annotated[float, Field(gt=0, le=1)]
    sustained_fraction_source: Text
    fitted: bool = True

    @model_validator(mode="after")
    def _consistent(self) -> Memory:
        computed = self.bus_bits / 8 * self.mt_s * 1e-3
        if abs(self.peak_gb_s / computed - 1) > 0.01:
            raise ValueError(f"peak_gb_s {self.peak_gb_s:g} is not bus_bits / 8 * mt_s, {computed:.2f} GB/s")
        return self

    @property
    def sustained_gb_s(self) -> float:
        """10^9 bytes per second of reads in long bursts."""
        return self.peak_gb_s * self.sustained_fraction


class Ports(Table):
    """The AXI ports an overlay reads memory through, each on a memory controller port of its own.

    ``controller_ports``: that port's number, in the order of ``names``. ``max_burst_beats``: beats of ``width_bits``.
    """

    names: Annotated[tuple[Text, ...], Field(strict=False, min_length=1)]
    controller_ports: Annotated[tuple[Count, ...], Field(strict=False)]
    width_bits: Annotated[int, Field(gt=0, le=1024)]  # the widest of AXI
    max_burst_beats: Annotated[int, Field(gt=0, le=256)]  # the longest of AXI4

    @model_validator(mode="after")
    def _distinct(self) -> Ports:
        if len(self.names) != len(self.controller_ports):
            raise ValueError(f"{len(self.names)} names but {len(self.controller_ports)} controller_ports")
        for key in ("names", "controller_ports"):
            if len(set(getattr(self, key))) != len(self.names):
                raise ValueError(f"{key} lists one of them twice")
        return self

    @property
    def bytes_per_cycle(self) -> float:
        """Bytes that all ports together carry in one cycle of their clock."""
        return len(self.names) * self.width_bits / 8


class Overlay(Table):
    """``clock_mhz``: the clock to aim at, until timing is closed."""

    clock_mhz: Annotated[float, Field(ge=1, le=1000)]  # as an engine takes it


class Linux(Table):
    """``cma_bytes``: physically contiguous memory by the system's default settings; ``pynq.allocate`` has no other."""

    cma_bytes: Positive


class Board(Frozen):
    """A board file. ``ddr`` is the memory weights stream from; ``pl_ddr`` a second one at the programmable logic.

    Rates per cycle are at ``clock_mhz``, by default the overlay's.
    """

    name: Text
    device: Device
    resources: Resources
    ddr: Memory
    pl_ddr: Memory | None = None
    ports: Ports
    overlay: Overlay
    linux: Linux | None = None

    def peak_bytes_per_cycle(self, clock_mhz: float | None = None) -> float:
        """Bytes of ``ddr`` per cycle by its data sheet."""
        return self.ddr.peak_gb_s * 1e3 / self._clock(clock_mhz)

    def sustained_bytes_per_cycle(self, clock_mhz: float | None = None) -> float:
        """Bytes per cycle of long reads: what ``ddr`` sustains or what the ports carry, whichever is less."""
        return min(self.ddr.sustained_gb_s * 1e3 / self._clock(clock_mhz), self.ports.bytes_per_cycle)

    def sustained_beats_per_cycle(self, clock_mhz: float | None = None) -> float:
        """The same in beats of 16 bytes."""
        return self.sustained_bytes_per_cycle(clock_mhz) / BEAT_BYTES

    def _clock(self, clock_mhz: float | None) -> float:
        clock = self.overlay.clock_mhz if clock_mhz is None else clock_mhz
        if not 0 < clock < math.inf:
            raise UsageError(
                "clock", f"{clock} MHz", "a positive number of MHz", "Leave it out for the overlay's clock."
            )
        return clock
