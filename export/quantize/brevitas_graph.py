"""The graph-level algorithms of Brevitas that this package uses, imported quietly.

Importing ``brevitas.graph`` warns of its own deprecated parts, and of a GPU package for Hadamard transforms when that
is absent; no step here needs either.
"""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", message="fast_hadamard_transform")
    warnings.filterwarnings("ignore", message="brevitas.fx is deprecated")
    from brevitas.graph.calibrate import calibration_mode
    from brevitas.graph.gptq import GPTQ, gptq_mode

__all__ = ["GPTQ", "calibration_mode", "gptq_mode"]
