"""GELU with the normal distribution function from a table."""

from __future__ import annotations

import numpy as np

from .tables import phi_table, table_index

__all__ = ["gelu"]


def gelu(x: np.ndarray) -> np.ndarray:
    """x * Phi(x) (arXiv 1606.08415, section 2), float32 of any shape; Phi from a table by a 16-bit index."""
    return x * phi_table()[table_index(x)]
