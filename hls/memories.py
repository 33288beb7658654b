"""On-chip memories of UltraScale+ and what an array takes of them: LUT RAM, block RAM or UltraRAM. Estimates.

Sources: UG573 (block RAM and UltraRAM), UG974 (LUT RAM), UG574 (multiplexers). Widths are bits, depths words.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["KINDS", "Memory", "Storage", "block_rams", "lut_ram", "mux", "ultra_rams"]

RAMB36 = ((512, 72), (1024, 36), (2048, 18), (4096, 9), (8192, 4), (16384, 2), (32768, 1))
"""Depth and width of a block RAM of 36 Kb (UG573). 72 bits only with one port that reads and one that writes."""

RAMB18 = ((512, 36), (1024, 18), (2048, 9), (4096, 4), (8192, 2), (16384, 1))
"""Its halves, which can be used one by one; 36 bits only with one port that reads and one that writes."""

URAM = (4096, 72)
"""Depth and width of an UltraRAM (UG573): this shape only, two ports on one clock, no initial contents."""

LUT_WORDS = 64
"""Banks of at most this many words go to LUT RAM: one slice of 8 LUTs holds 32 x 14 or 64 x 7 bits."""

KINDS = ("lutram", "bram", "uram")
"""What an array can be bound to, as Vitis HLS names it (UG1399, bind_storage)."""

URAM_WORDS, URAM_BITS = 4096, 4096 * 64
"""A bank goes to UltraRAM from this depth and size on: below, more of the block would lie idle than is used."""


def mux(inputs: int) -> float:
    """LUTs a bit of an ``inputs``:1 multiplexer: 4:1 a LUT6, two 2:1 a LUT6; F7, F8 and F9 join up to 32:1 (UG574)."""
    if inputs <= 1:
        return 0.0
    if inputs == 2:
        return 0.5
    if inputs <= 32:
        return float(1 << max(0, (inputs - 1).bit_length() - 2))
    groups = _ceil(inputs, 32)
    return groups * mux(32) + mux(groups)


def lut_ram(depth: int, width: int) -> int:
    """LUTs of a memory with one port that writes and one that reads (UG974)."""
    if depth <= 32:
        return 8 * _ceil(width, 14)
    words = _ceil(depth, 64)
    return 8 * _ceil(width, 7) * words + int(mux(words) * width)


def block_rams(depth: int, width: int, *, dual: bool = False) -> float:
    """Block RAMs of 36 Kb, in halves: the shape that takes the least. ``dual``: both ports read."""
    full = min(2 * _ceil(depth, rows) * _ceil(width, bits) for rows, bits in RAMB36[dual:])
    half = min(_ceil(depth, rows) * _ceil(width, bits) for rows, bits in RAMB18[dual:])
    return min(full, half) / 2


def ultra_rams(depth: int, width: int) -> int:
    return _ceil(depth, URAM[0]) * _ceil(width, URAM[1])


@dataclass(frozen=True)
class Storage:
    """Blocks that memories take."""

    lut: int = 0
    bram36: float = 0.0
    uram: int = 0

    def __add__(self, other: Storage) -> Storage:
        return Storage(self.lut + other.lut, self.bram36 + other.bram36, self.uram + other.uram)


@dataclass(frozen=True)
class Memory:
    """``banks`` equal memories of ``depth`` words of ``width`` bits, each accessed on its own in a clock.

    ``table``: has initial contents, and both ports read; UltraRAM cannot hold it. ``variable``: of an array that may
    be bound to another kind of memory than its depth suggests, its name in the engine's code.
    """

    name: str
    depth: int
    width: int
    banks: int = 1
    table: bool = False
    variable: str = ""

    @property
    def bits(self) -> int:
        return self.depth * self.width * self.banks

    def storage(self, ultraram: bool, kind: str = "") -> Storage:
        """Where it goes; ``ultraram``: whether the device has any. ``kind``: one of ``KINDS`` that it is bound to."""
        if not kind:
            large = self.depth >= URAM_WORDS and self.depth * self.width >= URAM_BITS
            kind = "uram" if ultraram and large and not self.table else "bram"
            kind = "lutram" if self.depth <= LUT_WORDS else kind
        if kind == "lutram":
            return Storage(lut=self.banks * lut_ram(self.depth, self.width))
        if kind == "uram":
            return Storage(uram=self.banks * ultra_rams(self.depth, self.width))
        return Storage(bram36=self.banks * block_rams(self.depth, self.width, dual=self.table))


def _ceil(n: int, d: int) -> int:
    return -(-n // d)
