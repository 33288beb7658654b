"""What the emulated device is told to do wrong."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass, fields

from ...toolkit.errors import UsageError

__all__ = ["Faults", "parse_faults"]

MIB = 1 << 20


@dataclass
class Faults:
    """Starts are counted from 1, those that the driver makes to read the build id included."""

    hang: int | None = None  # this start never ends
    error: int | None = None  # this start ends with BAD_TOKEN in its status
    flip: int | None = None  # before this start a bit of the weights in memory flips; 0: of all that is copied there
    leftover: bool = False  # from the second clip on, a result depends on what ran before
    no_interrupt: bool = False  # the line never rises
    no_reset: bool = False  # an engine that hangs stays so, whatever the reset bit
    by_calls: bool = False  # no fault: registers are reached by calls, as on a card, instead of mapped
    build: int | None = None  # the build id that is reported
    memory: int = 1000 * MIB  # bytes of contiguous memory
    pace: float = 0.0  # seconds a start takes at least
    name: str = ""  # of the device: two sessions that give the same one exclude each other


LARGEST_MEMORY = 1 << 20  # MiB, 1 TiB: more than any board has
LONGEST_PACE = 86_400.0  # seconds, a day: longer sleeps overflow sooner or later
LONGEST_NAME = 100  # bytes; a file is named after the device


def _between(parse: Callable[[str], float], low: float, high: float) -> Callable[[str], float]:
    """ValueError outside, and for what compares with nothing."""

    def checked(text: str) -> float:
        value = parse(text)
        if not low <= value <= high:
            raise ValueError(text)
        return value

    return checked


def _name(text: str) -> str:
    if not 0 < len(os.fsencode(text)) <= LONGEST_NAME:
        raise ValueError(text)
    return text


_start = _between(int, 1, math.inf)
KINDS: dict[str, Callable[[str], object]] = {
    "hang": _start,
    "error": _start,
    "flip": _between(int, 0, math.inf),
    "build": _between(lambda text: int(text, 16), 0, 0xFFFF_FFFF),
    "memory": lambda text: int(_between(float, 0, LARGEST_MEMORY)(text) * MIB),
    "pace": _between(float, 0, LONGEST_PACE),
    "name": _name,
}
EXPECTED = (
    "hang=N, error=N, flip=N (at the Nth start, from 1; flip=0: as memory is filled), leftover, no-interrupt, "
    "no-reset, by-calls, build=HEX (32 bits), memory=MIB, pace=SECONDS, name=NAME, each once, separated by commas"
)


def parse_faults(text: str) -> Faults:
    """``hang=3,no-interrupt`` and so on; UsageError for what is no fault, or is told twice."""
    faults, flags, told = Faults(), {field.name for field in fields(Faults)} - set(KINDS), set()
    for part in filter(None, text.split(",")):
        key, given, value = part.partition("=")
        key = key.strip().replace("-", "_")
        try:
            if key in told:
                raise ValueError(part)
            told.add(key)
            if key in KINDS and given:
                setattr(faults, key, KINDS[key](value))
            elif key in flags and not given:
                setattr(faults, key, True)
            else:
                raise ValueError(part)
        except ValueError:
            raise UsageError("--device emulated", repr(part), EXPECTED, "Correct the fault.") from None
    return faults
