"""Checks the pragmas of the kernels and the subset of C++ they keep to, without a vendor's tool::

    python -m fastcar.hls.lint            # the project's kernels
    python -m fastcar.hls.lint a.h src    # other files and folders

Code between ``#ifdef FASTCAR_SIMULATION`` and its ``#else`` or ``#endif`` is not synthesized and not checked.
"""

from __future__ import annotations

from .check import kernels, lint_files
from .findings import Finding

__all__ = ["Finding", "kernels", "lint_files"]
