"""What a module becomes on UltraScale+: DSP48E2, BRAM and URAM as Yosys maps them.

Only up to the mapping of these blocks: how many LUTs follow differs too much between tools to be worth a number.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from .tools import RTL, CheckError, run, yosys

__all__ = ["BLOCKS", "count_cells"]

# Cell of a family of blocks, by the start of its name.
BLOCKS = {"DSP48": "DSP48E2", "RAMB": "BRAM", "FIFO": "BRAM", "URAM": "URAM"}


def count_cells(
    module: str,
    files: Sequence[str],
    parameters: Mapping[str, int] | None = None,
    *,
    rtl: Path = RTL,
    seconds: float = 300,
) -> dict[str, int]:
    """``{"DSP48E2": n, "BRAM": n, "URAM": n}`` of a module; a BRAM is any of its 18 or 36 Kb cells."""
    settings = " ".join(f"-set {name} {value}" for name, value in (parameters or {}).items())
    script = [f"read_verilog -sv {' '.join(files)}"]
    script += [f"chparam {settings} {module}"] if settings else []
    script += [f"synth_xilinx -family xcup -flatten -noiopad -top {module} -run :map_ffram"]
    script += ["tee -q -o cells.json stat -json"]
    with tempfile.TemporaryDirectory(prefix="fastcar-synthesis-") as name:
        folder = Path(name)
        for file in files:
            shutil.copy(rtl / file, folder)
        done = run([*yosys(), "-q", "-p", "; ".join(script)], folder, seconds)
        if done.returncode:
            raise CheckError(module, done.stderr.strip()[-500:], "RTL that Yosys synthesizes", "Correct it.")
        cells = json.loads((folder / "cells.json").read_text())["design"]["num_cells_by_type"]
    counts = dict.fromkeys(BLOCKS.values(), 0)
    for cell, number in cells.items():
        for start, block in BLOCKS.items():
            if cell.startswith(start):
                counts[block] += number
    return counts
