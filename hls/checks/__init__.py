"""Checks of the hand-written RTL: co-simulation with the C++ models, what it synthesizes to, bounded proofs."""

from __future__ import annotations

from .blackbox import Blackbox, read_blackbox
from .cosimulation import BENCHES, Cosimulation, cosimulate
from .proof import Proof, prove
from .synthesis import count_cells
from .tools import CheckError, MissingToolError

__all__ = [
    "BENCHES",
    "Blackbox",
    "CheckError",
    "Cosimulation",
    "MissingToolError",
    "Proof",
    "cosimulate",
    "count_cells",
    "prove",
    "read_blackbox",
]
