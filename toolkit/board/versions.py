"""Versions of what the board's image brings: the runtime under PYNQ."""

from __future__ import annotations

import re
import subprocess

from ..errors import DeviceError

__all__ = ["XRT_QUERIES", "XRT_VERSION", "check_pynq", "xrt_version"]

XRT_QUERIES = (["xbutil", "--version"], ["dpkg-query", "-W", "-f", "${Version}", "xrt"])
XRT_VERSION = re.compile(r"\b(\d+\.\d+\.\d+)\b")
OLDEST_PYNQ = (3, 0)
WITHOUT_NUMPY_2 = (4, 0)  # its buffers set an attribute that is NumPy's own since 2.0; so do those before it
PATIENCE_SECONDS = 5


def check_pynq() -> None:
    """DeviceError for a PYNQ whose devices are not those of today, or that cannot work with the NumPy installed."""
    import numpy as np
    import pynq

    version = tuple(int(part) for part in pynq.__version__.split(".")[:2])
    if version < OLDEST_PYNQ:
        raise DeviceError("pynq", pynq.__version__, "3.0 or newer", "Update the board's image, or pip install pynq.")
    if version <= WITHOUT_NUMPY_2 and not np.__version__.startswith("1."):
        raise DeviceError("numpy", np.__version__, f"1.x, for pynq {pynq.__version__}", "pip install 'numpy<2'")


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
