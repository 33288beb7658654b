"""What the emulated device is told to do wrong."""

from __future__ import annotations

from dataclasses import dataclass, fields

from ...toolkit.errors import UsageError

__all__ = ["Faults", "parse_faults"]

MIB = 1 << 20


@dataclass
class Faults:
    """Starts are counted from 1, those that the driver makes to read the build id included."""

    hang: int | None = None  # this start never ends
    error: int | None = None  # this start ends with BAD_TOKEN in its status
    flip: int | None = None  # before this start a bit of the weights in memory flips
    leftover: bool = False  # from the second clip on, a result depends on what ran before
    no_interrupt: bool = False  # the line never rises
    no_reset: bool = False  # an engine that hangs stays so, whatever the reset bit
    by_calls: bool = False  # no fault: registers are reached by calls, as on a card, instead of mapped
    build: int | None = None  # the build id that is reported
    memory: int = 1000 * MIB  # bytes of contiguous memory
    pace: float = 0.0  # seconds a start takes at least
    name: str = ""  # of the device: two sessions that give the same one exclude each other


KINDS = {
    "hang": int,
    "error": int,
    "flip": int,
    "build": lambda text: int(text, 16),
    "memory": lambda text: int(float(text) * MIB),
    "pace": float,
    "name": str,
}
EXPECTED = (
    "hang=N, error=N, flip=N (at the Nth start), leftover, no-interrupt, no-reset, by-calls, build=HEX, memory=MIB, "
    "pace=SECONDS, name=NAME, separated by commas"
)


def parse_faults(text: str) -> Faults:
    """``hang=3,no-interrupt`` and so on; UsageError for what is no fault."""
    faults, flags = Faults(), {field.name for field in fields(Faults)} - set(KINDS)
    for part in filter(None, text.split(",")):
        key, given, value = part.partition("=")
        key = key.strip().replace("-", "_")
        try:
            if key in KINDS and given:
                setattr(faults, key, KINDS[key](value))
            elif key in flags and not given:
                setattr(faults, key, True)
            else:
                raise ValueError(part)
        except ValueError:
            raise UsageError("--device emulated", repr(part), EXPECTED, "Correct the fault.") from None
    return faults
