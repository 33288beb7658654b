"""Register blocks of the emulated device: 32-bit words at offsets, as the processor reads and writes them."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["PlainRegisters", "RegisterBlock", "ResetRegister"]


class RegisterBlock:
    """A slave at ``base`` of ``size`` bytes."""

    def __init__(self, base: int, size: int) -> None:
        self.base, self.size = base, size

    def read(self, offset: int) -> int:
        """The word at ``offset`` bytes; reading may change it."""
        raise NotImplementedError

    def write(self, offset: int, value: int) -> None:
        raise NotImplementedError


class PlainRegisters(RegisterBlock):
    """Keeps what is written: the processor's clock registers, with their values after reset."""

    def __init__(self, base: int, size: int, after_reset: dict[int, int] | None = None) -> None:
        super().__init__(base, size)
        self.words = dict(after_reset or {})

    def read(self, offset: int) -> int:
        return self.words.get(offset, 0)

    def write(self, offset: int, value: int) -> None:
        self.words[offset] = value


class ResetRegister(RegisterBlock):
    """An AXI GPIO of one output bit, 1 after reset; ``reset(active)`` is called when it falls or rises."""

    def __init__(self, base: int, size: int, reset: Callable[[bool], None]) -> None:
        super().__init__(base, size)
        self.level, self.reset = 1, reset

    def read(self, offset: int) -> int:
        return self.level if offset == 0 else 0

    def write(self, offset: int, value: int) -> None:
        if offset == 0 and (value & 1) != self.level:
            self.level = value & 1
            self.reset(self.level == 0)
