"""Machines to examine; see tests/support/machines.py."""

from __future__ import annotations

from pathlib import Path

import pytest
from machines import Make, kria_in, workstation_in


@pytest.fixture
def kria(tmp_path: Path) -> Make:
    """A KV260 without a fault."""
    return kria_in(tmp_path)


@pytest.fixture
def workstation(tmp_path: Path) -> Make:
    """An x86 computer that can do all but build an overlay or drive one."""
    return workstation_in(tmp_path)
