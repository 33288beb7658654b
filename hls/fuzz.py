"""The fuzzer of bad programs, ``sim/fuzz.cpp``: compiled under the sanitizers, fed with valid starts of the engine."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np

from ..toolkit.program.engine import EngineConfig
from ..toolkit.program.registers import STATUS
from .build import FLAGS, HERE, SANITIZERS, arithmetic_headers, compile_with
from .codegen import write_headers

__all__ = ["FuzzError", "build_fuzzer", "run_fuzzer", "started", "write_case"]

SOURCES = ("engine/engine.cpp", "sim/fuzz.cpp")
# The arithmetic headers shift negative numbers to the left, which C++20 defines and every compiler does.
CHECKS = (*SANITIZERS, "-fsanitize=float-cast-overflow", "-fno-sanitize=shift-base")


class FuzzError(RuntimeError):
    """A mutant broke a rule or tripped a sanitizer; the text says which, and how to run it again."""


def build_fuzzer(config: EngineConfig, folder: Path, root: Path = HERE) -> Path:
    """Path of the program, compiled into ``folder`` from the kernels in ``root``."""
    headers = folder / "generated"
    write_headers(headers, config)
    fuzzer = folder / "fuzz"
    folders = (headers, root, root / "include", root / "include/fastcar")
    includes = ["-isystem", str(arithmetic_headers()), *(f"-I{path}" for path in folders)]
    sources = [str(root / source) for source in SOURCES]
    compile_with([*FLAGS, "-O1", *CHECKS, *includes, *sources, "-o", str(fuzzer), "-pthread"])
    return fuzzer


def write_case(path: Path, program: np.ndarray, weights: np.ndarray, state: np.ndarray, control: np.ndarray) -> Path:
    """A valid start as the fuzzer reads it; the arrays as for ``EngineLibrary.run``."""
    path.write_bytes(b"".join(np.ascontiguousarray(part).tobytes() for part in (control, program, weights, state)))
    return path


def run_fuzzer(fuzzer: Path, cases: list[Path], mutants: int, seed: int = 0, timeout: float = 900) -> dict[str, float]:
    """Counts by name: mutants, those of each status (``DONE``, ...), steps, replayed rows. FuzzError on a fault."""
    command = [str(fuzzer), str(seed), str(mutants), *map(str, cases)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    if done.returncode:
        raise FuzzError(f"{' '.join(command)}\n{done.stderr[-6000:]}")
    counts = {name: float(value) for name, value in (line.split() for line in done.stdout.splitlines())}
    names = {f"status{code}": name for code, (name, _) in STATUS.items()}
    return {names.get(name, name): value for name, value in counts.items()}


def started(counts: dict[str, float]) -> float:
    """Share of the mutants that passed the checks and ran."""
    return (counts["DONE"] + counts["BAD_TOKEN"]) / counts["mutants"]
