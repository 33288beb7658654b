"""Records of 32-bit words by name: packed here, and emitted as C++ structs by the code generator."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np

__all__ = ["Record", "Word"]

RANGE = {"u32": (0, (1 << 32) - 1), "i32": (-(1 << 31), (1 << 31) - 1)}


@dataclass(frozen=True)
class Word:
    """One field: ``kind`` u32, i32 or f32, little-endian; ``about`` goes into the generated comment."""

    name: str
    about: str
    kind: str = "u32"

    def encode(self, value: float) -> int:
        """The word's bits; ValueError for an integer outside the field."""
        if self.kind == "f32":
            return struct.unpack("<I", struct.pack("<f", value))[0]
        low, high = RANGE[self.kind]
        if not low <= int(value) <= high:
            raise ValueError(f"{self.name} {value}; expected {low} to {high}")
        return int(value) & 0xFFFFFFFF

    def decode(self, bits: int) -> float | int:
        if self.kind == "f32":
            return struct.unpack("<f", struct.pack("<I", bits))[0]
        return bits - (1 << 32) if self.kind == "i32" and bits >> 31 else bits


@dataclass(frozen=True)
class Record:
    """A named sequence of words, padded with zero words to ``size`` if that is given."""

    name: str
    about: str
    words: tuple[Word, ...]
    size: int | None = None

    @property
    def length(self) -> int:
        return self.size or len(self.words)

    def pack(self, **values: float) -> np.ndarray:
        """(length,) uint32. TypeError for a missing or unknown field, ValueError for a value out of range."""
        names = {word.name for word in self.words}
        if names != set(values):
            raise TypeError(
                f"{self.name}: missing {sorted(names - set(values))}, unknown {sorted(set(values) - names)}"
            )
        packed = np.zeros(self.length, np.uint32)
        packed[: len(self.words)] = [word.encode(values[word.name]) for word in self.words]
        return packed

    def unpack(self, packed: np.ndarray) -> dict[str, float | int]:
        return {word.name: word.decode(int(bits)) for word, bits in zip(self.words, packed, strict=False)}
