"""Python and its packages: what each job needs, and what does not go together."""

from __future__ import annotations

from collections.abc import Iterable

from .machine import Machine
from .model import NOTE, OK, PROBLEM, Check, Probe
from .requirements import Requirement, numbers

__all__ = ["BOARD", "WORKSTATION"]

PROJECT = "fastcar-edge"
OLDEST_PYTHON, NEWEST_PYTHON = (3, 10), (3, 12)
JOBS = {
    "export": "export of a checkpoint",
    "emulate": "generation with onnxruntime",
    "board": "generation on a board, or on an emulated one",
}
OLDEST_PYNQ = ("pynq", ">=3.0.1", "board", True)
# Measured: what breaks PYNQ although its metadata, in one of its versions, allows it.
WITH_PYNQ = (
    ("setuptools<82", "it imports pkg_resources, which 82 does not have"),
    ("pycparser<3", "every Overlay() of 3.x fails with 3"),
    ("numpy<2", "it is built for NumPy 1"),
)
WATCHED = ("pynq", "pynqutils", "pynqmetadata", "grpcio-tools", "onnx", "onnxruntime", "brevitas", "onnx-ir")
"""Packages whose requirements are compared with what is installed; one that is not installed is passed over."""


def python_version(machine: Machine) -> Iterable[Check]:
    found = ".".join(map(str, machine.python))
    if machine.python[:2] < OLDEST_PYTHON:
        yield Check("Python", PROBLEM, found, "Use Python 3.10 to 3.12.")
    elif machine.python[:2] > NEWEST_PYTHON:
        fix = "Use 3.10 to 3.12: PYNQ's grpcio has no wheels for newer ones, and NumPy 1.26 has none."
        yield Check("Python", NOTE, f"{found}, not tested", fix)
    else:
        yield Check("Python", OK, found)


def base_packages(machine: Machine) -> Iterable[Check]:
    lines = _requirements(machine, PROJECT)
    version = machine.packages.version(PROJECT)
    if version is None or not lines:
        fix = "pip install . in its folder."
        yield Check(PROJECT, NOTE, "not installed: what it needs is not known", fix)
        return
    yield _check(machine, f"{PROJECT} {version}", [line for line in lines if line.extra is None], PROBLEM)


def workstation_jobs(machine: Machine) -> Iterable[Check]:
    """Each is optional, but one that is there in versions that do not fit is a problem."""
    for extra in JOBS:
        yield from _job(machine, extra, NOTE)


def board_jobs(machine: Machine) -> Iterable[Check]:
    """The one a board is for."""
    yield from _job(machine, "board", PROBLEM)


def _job(machine: Machine, extra: str, if_missing: str) -> Iterable[Check]:
    told = _ruled() if extra == "board" else set()
    own = [line for line in _requirements(machine, PROJECT) if line.extra == extra and line.name not in told]
    if extra == "board" and not own:  # the metadata of an older installation
        own = [Requirement(*OLDEST_PYNQ)]
    if own:
        yield _check(machine, JOBS[extra], own, if_missing, f"pip install '{PROJECT}[{extra}]'")


def packages_beside_pynq(machine: Machine) -> Iterable[Check]:
    """Nothing where PYNQ is not installed."""
    pynq = machine.packages.version("pynq")
    if pynq is None:
        return
    for line, reason in WITH_PYNQ:
        rule = Requirement.parse(line, machine.python)
        version = machine.packages.version(rule.name)
        if version is not None and not rule.allows(version):
            yield Check(f"PYNQ {pynq}", PROBLEM, f"{rule.name} {version}: {reason}", f"pip install '{line}'")
        elif version is None and rule.name == "setuptools" and numbers(pynq) < (4,):
            yield Check(f"PYNQ {pynq}", PROBLEM, f"no setuptools: {reason}", f"pip install '{line}'")


def conflicts(machine: Machine) -> Iterable[Check]:
    """Requirements of installed packages that other installed packages do not meet."""
    for name in WATCHED:
        version = machine.packages.version(name)
        if version is None:
            continue
        for line in _requirements(machine, name):
            other = machine.packages.version(line.name)
            told = line.name in _ruled() and name.startswith("pynq")
            if line.extra or other is None or line.allows(other) or told:
                continue
            found = f"needs {line}, there is {line.name} {other}"
            yield Check(f"{name} {version}", PROBLEM, found, _conflict_fix(machine, line))


def _ruled() -> set[str]:
    """Packages that ``packages_beside_pynq`` tells of, with the reason."""
    return {line.partition("<")[0] for line, _ in WITH_PYNQ}


def _conflict_fix(machine: Machine, line: Requirement) -> str:
    if line.name == "protobuf" and machine.packages.version("onnx") and machine.packages.version("pynq"):
        return "onnx 1.23 and PYNQ 4 want different ones: pip install 'onnx==1.22.0' 'protobuf>=5.26.1,<6'"
    return f"pip install '{line}'"


def _requirements(machine: Machine, name: str) -> list[Requirement]:
    """Those that apply to this Python."""
    parsed = (Requirement.parse(line, machine.python) for line in machine.packages.requires(name))
    return [line for line in parsed if line and line.applies]


def _check(machine: Machine, name: str, lines: list[Requirement], if_missing: str, fix: str = "") -> Check:
    """Whether the packages are there, in versions that fit; what is optional has to fit only once all is there."""
    have = {line: machine.packages.version(line.name) for line in lines}
    missing = [str(line) for line, version in have.items() if version is None]
    wrong = {line: version for line, version in have.items() if version and not line.allows(version)}
    if wrong and (if_missing == PROBLEM or not missing):
        found = "; ".join(f"{line.name} {version}, needed {line}" for line, version in wrong.items())
        return Check(name, PROBLEM, found, "pip install " + " ".join(f"'{line}'" for line in wrong))
    if missing:
        return Check(name, if_missing, f"not installed: {', '.join(missing)}", fix or f"pip install '{PROJECT}'")
    return Check(name, OK, ", ".join(f"{line.name} {version}" for line, version in have.items()))


COMMON: tuple[Probe, ...] = (python_version, base_packages)
WORKSTATION = (*COMMON, workstation_jobs, packages_beside_pynq, conflicts)
BOARD = (*COMMON, board_jobs, packages_beside_pynq, conflicts)
