"""Watching a step: what its nodes compute, for those who compare node by node."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .linear import QuantizedRows

__all__ = ["Keep", "forget"]

Keep = Callable[[str, np.ndarray | QuantizedRows], None]
"""Called with each node's name and result, in the order of execution; see ``toolkit.program.trace``."""


def forget(name: str, result: np.ndarray | QuantizedRows) -> None:
    """The ``Keep`` that does not."""
