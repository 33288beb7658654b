"""Versions of what the board's image brings: the runtime under PYNQ."""

from __future__ import annotations

import re
import subprocess

from ..errors import DeviceError

__all__ = ["XRT_QUERIES", "XRT_VERSION", "check_pynq", "xrt_version"]

XRT_QUERIES = (["xbutil", "--version"], ["dpkg-query", "-W", "-f", "${Version}", "xrt"])
XRT_VERSION = re.compile(r"\b(\d+\.\d+\.\d+)\b")
OLDEST_PYNQ = (3, 0)
PATIENCE_SECONDS = 5


def check_pynq() -> None:
    """DeviceError for a PYNQ whose devices are not those of today."""
    import pynq

    version = tuple(int(part) for part in pynq.__version__.split(".")[:2])
    if version < OLDEST_PYNQ:
        raise DeviceError("pynq", pynq.__version__, "3.0 or newer", "Update the board's image, or pip install pynq.")


def xrt_version() -> str | None:
    """As its own tool or the package manager tells it; None where neither does."""
    for query in XRT_QUERIES:
        try:
            done = subprocess.run(query, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if found := XRT_VERSION.search(done.stdout):
            return found[1]
    return None
