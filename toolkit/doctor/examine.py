"""All checks of a machine, chosen by what it is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..bundle.bundle import Bundle
from . import board, packages, resources, workstation
from .identity import identify
from .machine import Machine
from .model import OK, PROBLEM, Check, run_probes

__all__ = ["Examination", "examine"]


@dataclass(frozen=True)
class Examination:
    """``machine``: "board" or "workstation"; ``name``: of the board, None if it is none or none that is known."""

    machine: str
    name: str | None
    checks: tuple[Check, ...]

    @property
    def problems(self) -> int:
        return sum(check.status == PROBLEM for check in self.checks)

    def as_dict(self) -> dict[str, Any]:
        return {
            "machine": self.machine,
            "board": self.name,
            "problems": self.problems,
            "checks": [vars(check) for check in self.checks],
        }


def examine(machine: Machine, bundle: Bundle | None = None) -> Examination:
    """Run every probe; none raises, and no program is waited for longer than 5 s."""
    identity = identify(machine)
    if identity is None:
        checks = run_probes((*packages.WORKSTATION, *workstation.PROBES), machine)
        return Examination("workstation", None, (*checks, *_verified(bundle)))
    bundles = () if bundle is None else (resources.bundle_probe(bundle),)
    checks = run_probes((*packages.BOARD, *board.PROBES, *resources.PROBES, *bundles), machine)
    return Examination("board", identity.board, tuple(checks))


def _verified(bundle: Bundle | None) -> Iterator[Check]:
    if bundle is not None:
        found = f"whole, by its hashes; which boards it runs on: fastcar boards {bundle.path}"
        yield Check(f"bundle {bundle.path.name}", OK, found)
