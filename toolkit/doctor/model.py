"""What a probe finds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from .machine import Machine

__all__ = ["NOTE", "OK", "PROBLEM", "Check", "Probe", "run_probes"]

OK, PROBLEM, NOTE = "ok", "problem", "note"


@dataclass(frozen=True)
class Check:
    """``status``: OK; PROBLEM, what this machine is for does not work; NOTE, something optional is not there.

    ``fix``: what to do, empty where nothing is to be done.
    """

    name: str
    status: str
    found: str
    fix: str = ""


Probe = Callable[[Machine], Iterable[Check]]


def run_probes(probes: Iterable[Probe], machine: Machine) -> Iterator[Check]:
    """All checks in order; a probe that fails itself is a note, and the others still run."""
    for probe in probes:
        try:
            yield from list(probe(machine))
        except Exception as error:  # a machine in disorder is what this is for
            name = probe.__name__.strip("_").replace("_", " ")
            yield Check(name, NOTE, f"could not be looked at: {type(error).__name__}: {error}")
