"""Bounded proofs of the properties in ``rtl/<unit>_properties.sv``: Yosys unrolls, Bitwuzla decides.

    prove("drs_unit", {"ROWS": 8, "GROUPS": 3, "MAX_PAIRS": 4, "STALLS": 0}, drs_clocks(8, 3, 4, 0))

All clocks are one question: is there a run in which an assumption never and an assertion somewhere fails? The bound is
complete where an assertion says that everything is over by then, as the DRS unit's ``finishes`` does.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .tools import RTL, CheckError, package_folder, run, yosys

__all__ = ["Proof", "drs_clocks", "prove"]

# Prints sat or unsat, then the value of each term, one a line. By itself, so that it can be stopped.
SOLVER = """
import sys, bitwuzla
options = bitwuzla.Options()
options.set(bitwuzla.Option.PRODUCE_MODELS, True)
parser = bitwuzla.Parser(bitwuzla.TermManager(), options)
parser.parse(sys.argv[1], True, True)
solver = parser.bitwuzla()
satisfiable = solver.check_sat() is bitwuzla.Result.SAT
print("sat" if satisfiable else "unsat")
if satisfiable:
    for line in open(sys.argv[2]):
        print(str(solver.get_value(parser.parse_term(line))).removeprefix("#b"))
"""


@dataclass(frozen=True)
class Proof:
    """What held: every assertion named, in the first ``clocks`` clocks, for all values of what is free."""

    unit: str
    parameters: Mapping[str, int] = field(hash=False)
    clocks: int
    assertions: tuple[str, ...]
    seconds: float


def drs_clocks(rows: int, groups: int, max_pairs: int, stalls: int) -> int:
    """Clocks in which every decision with at most so many stalls is over, and one to see its last assertion."""
    start, waves = 2, -(-rows * max_pairs // groups)
    return start + rows + groups + 2 + waves + stalls + 2


def prove(unit: str, parameters: Mapping[str, int], clocks: int, *, rtl: Path = RTL, seconds: float = 600) -> Proof:
    """CheckError with the assertion that fails, its clock and the inputs; or if no run fulfils the assumptions."""
    package_folder("bitwuzla", "bitwuzla==0.10.0")
    top, begin = f"{unit}_properties", time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fastcar-proof-") as name:
        folder = Path(name)
        model = _model(unit, top, parameters, rtl, folder, seconds)
        names = _names(model, "assert")
        states = range(clocks)
        steps = [f"(declare-const s{i} |{top}_s|)" for i in states]
        steps += [f"(assert (|{top}_u| s{i}))\n(assert (|{top}_h| s{i}))" for i in states]
        steps += [f"(assert (|{top}_t| s{i} s{i + 1}))" for i in states[:-1]]
        runs = "\n".join(["(set-logic QF_BV)", model, *steps, f"(assert (|{top}_i| s0))"])
        if _solve(folder, runs, [], seconds) is None:
            raise CheckError(unit, "no run fulfils the assumptions", "one at least", "A proof would be void.")
        failures = " ".join(f"(not (|{top}_a| s{i}))" for i in states)
        failed = [f"(|{top}_a {number}| s{i})" for i in states for number in range(len(names))]
        inputs = [f"(|{top}_n {constant}| s0)" for constant in _names(model, "anyconst")]
        values = _solve(folder, f"{runs}\n(assert (or {failures}))", failed + inputs, seconds)
    if values is not None:
        first = values[: len(failed)].index("false")  # a state shows what was asserted at the clock before
        constants = dict(zip(_names(model, "anyconst"), values[len(failed) :], strict=True))
        raise CheckError(
            " ".join((unit, *(f"{name}={value}" for name, value in parameters.items()))),
            f"{names[first % len(names)]} fails in clock {first // len(names) - 1} with "
            + " ".join(f"{name} {_number(value)}" for name, value in constants.items()),
            "every assertion to hold",
            f"See {top}.sv.",
        )
    return Proof(unit, dict(parameters), clocks, tuple(names), time.monotonic() - begin)


def _model(unit: str, top: str, parameters: Mapping[str, int], rtl: Path, folder: Path, seconds: float) -> str:
    """The transition relation as SMT-LIB, states as bit vectors: the question is then one of bits alone."""
    files = (f"{unit}.sv", f"{top}.sv")
    for file, source in zip(files, (rtl, RTL), strict=True):
        shutil.copy(source / file, folder)
    settings = " ".join(f"-set {name} {value}" for name, value in parameters.items())
    script = [f"read_verilog -formal -sv {' '.join(files)}", f"chparam {settings} {top}", f"prep -top {top} -flatten"]
    script += ["async2sync", "opt -full", "dffunmap", "write_smt2 -stbv -wires model.smt2"]
    done = run([*yosys(), "-q", "-p", "; ".join(script)], folder, seconds)
    if done.returncode:
        raise CheckError(unit, done.stderr.strip()[-500:], "RTL and properties that Yosys reads", "Correct them.")
    return (folder / "model.smt2").read_text()


def _names(model: str, kind: str) -> list[str]:
    """Names of assertions by number, or of the free constants."""
    if kind == "assert":
        return re.findall(r"^; yosys-smt2-assert \d+ (\S+)", model, re.MULTILINE)
    return re.findall(r"^; yosys-smt2-anyconst \S+ \d+ \S+ (\S+)", model, re.MULTILINE)


def _solve(folder: Path, question: str, terms: Sequence[str], seconds: float) -> list[str] | None:
    """None if unsatisfiable, else the values of the terms."""
    (folder / "question.smt2").write_text(question)
    (folder / "terms").write_text("\n".join(terms))
    done = run([sys.executable, "-c", SOLVER, "question.smt2", "terms"], folder, seconds)
    answer, *values = done.stdout.splitlines() or [""]
    if answer not in ("sat", "unsat"):
        raise CheckError("Bitwuzla", (done.stderr or answer)[-500:], "sat or unsat", "See its version.")
    return values if answer == "sat" else None


def _number(value: str) -> int:
    """Of one bit the model makes a Boolean."""
    return ("false", "true").index(value) if value in ("false", "true") else int(value, 2)
