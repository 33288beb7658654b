"""Versions of packages: what fits, what is missing for which job, what does not go together."""

from __future__ import annotations

import pytest
from machines import Make, Packages, one

from fastcar.toolkit.doctor import examine
from fastcar.toolkit.doctor.requirements import Requirement, numbers

EXPORT = "export of a checkpoint"
ON_BOARD = "generation on a board, or on an emulated one"


@pytest.mark.parametrize(
    ("line", "name", "version", "fits"),
    [
        ("numpy>=1.26", "numpy", "1.26.4", True),
        ("numpy>=1.26", "numpy", "1.9.9", False),
        ("numpy <2.0,>=1.26", "numpy", "2.0.0", False),
        ("numpy (>=1.26)", "numpy", "1.27", True),
        ("brevitas<0.14,>=0.12.1", "brevitas", "0.13.4", True),
        ("brevitas<0.14,>=0.12.1", "brevitas", "0.14.0rc1", False),
        ("torch>=2.4", "torch", "2.13.0+cpu", True),
        ("setuptools<=80", "setuptools", "80.0.0", True),
        ("setuptools<=80", "setuptools", "80.0.1", False),
        ("grpcio-tools==1.64.0", "grpcio-tools", "1.64", True),
        ("a==1.2.*", "a", "1.2.7", True),
        ("a!=1.2.*", "a", "1.2.7", False),
        ("a~=1.4.2", "a", "1.4.9", True),
        ("a~=1.4.2", "a", "1.5", False),
        ("a~=1.4.2", "a", "1.4.1", False),
        ("a>1!2.0", "a", "2.1", True),
        ("Box_2D[extra]>=1", "box-2d", "1", True),
        ("a", "a", "0", True),
        ("a===odd", "a", "1", True),
    ],
)
def test_bounds(line: str, name: str, version: str, fits: bool) -> None:
    requirement = Requirement.parse(line, (3, 11))
    assert requirement.name == name and requirement.applies and requirement.extra is None
    assert requirement.allows(version) == fits


@pytest.mark.parametrize(
    ("marker", "python", "extra", "applies"),
    [
        ('python_version < "3.11"', (3, 10, 12), None, True),
        ('python_version < "3.11"', (3, 11, 7), None, False),
        ("python_version >= '3.9'", (3, 10, 1), None, True),
        ('extra == "export"', (3, 11), "export", True),
        ('extra == "export" and python_version < "3.11"', (3, 11), "export", False),
        ('platform_system == "Windows"', (3, 11), None, False),
        ('python_version < "3.8" or platform_system == "Linux"', (3, 11), None, False),
    ],
)
def test_markers(marker: str, python: tuple, extra: str | None, applies: bool) -> None:
    requirement = Requirement.parse(f"tomli>=2.0; {marker}", python)
    assert (requirement.extra, requirement.applies) == (extra, applies)


def test_versions() -> None:
    assert numbers("2.13.0+cpu") == (2, 13, 0) and numbers("v1.2rc3") == (1, 2) and numbers("odd") == ()
    assert Requirement.parse("", (3, 11)) is None


def test_requirements_of_this_installation_are_all_understood() -> None:
    """Every line of the real metadata parses, and those of the packages the tests need fit."""
    from fastcar.toolkit.doctor.machine import Installed

    packages = Installed()
    for name in ("fastcar-edge", "numpy", "onnx", "pydantic", "pytest"):
        lines = [Requirement.parse(line, (3, 11, 0)) for line in packages.requires(name)]
        assert all(lines), name
    base = [line for line in packages.requires("fastcar-edge") if "extra" not in line and "python_version" not in line]
    for line in base:
        requirement = Requirement.parse(line, (3, 11, 0))
        assert requirement.allows(packages.version(requirement.name)), line
    assert packages.version("no-such-package") is None and packages.requires("no-such-package") == []


def test_a_missing_package_of_the_base(kria: Make) -> None:
    check = one(examine(kria({"click": None})), "fastcar-edge 0.1.0")
    assert (check.status, check.found) == ("problem", "not installed: click>=8.1.7")
    assert check.fix == "pip install 'fastcar-edge'"


def test_an_old_package_of_the_base(workstation: Make) -> None:
    check = one(examine(workstation({"click": "8.0.4"})), "fastcar-edge 0.1.0")
    assert (check.status, check.found) == ("problem", "click 8.0.4, needed click>=8.1.7")
    assert check.fix == "pip install 'click>=8.1.7'"


def test_not_installed_at_all(workstation: Make) -> None:
    examined = examine(workstation({"fastcar-edge": None}))
    check = one(examined, "fastcar-edge")
    assert check.status == "note" and "pip install ." in check.fix and examined.problems == 0


def test_a_board_without_pynq(kria: Make) -> None:
    examined = examine(kria({"pynq": None}))
    check = one(examined, ON_BOARD)
    assert (check.status, check.found) == ("problem", "not installed: pynq>=3.0.1")
    assert check.fix == "pip install 'fastcar-edge[board]'" and examined.problems == 1


def test_a_board_with_metadata_that_knows_no_boards(kria: Make) -> None:
    machine = kria({"pynq": "2.7.0"})
    machine.packages.lines["fastcar-edge"] = ["numpy>=1.26"]
    assert one(examine(machine), ON_BOARD).found == "pynq 2.7.0, needed pynq>=3.0.1"


def test_jobs_of_a_workstation_are_optional(workstation: Make) -> None:
    examined = examine(workstation({"torch": None, "onnx": None, "onnxruntime": None}))
    assert examined.problems == 0
    assert one(examined, EXPORT).found == "not installed: torch>=2.4, onnx>=1.17"
    assert one(examined, EXPORT).fix == "pip install 'fastcar-edge[export]'"
    assert one(examined, "generation with onnxruntime").status == "note"


def test_but_not_in_versions_that_do_not_fit(workstation: Make) -> None:
    check = one(examine(workstation({"torch": "1.13.1"})), EXPORT)
    assert (check.status, check.found) == ("problem", "torch 1.13.1, needed torch>=2.4")


@pytest.mark.parametrize(
    ("package", "version", "reason", "fix"),
    [
        ("setuptools", "82.0.0", "pkg_resources", "pip install 'setuptools<82'"),
        ("pycparser", "3.0", "Overlay()", "pip install 'pycparser<3'"),
        ("numpy", "2.2.0", "NumPy 1", "pip install 'numpy<2'"),
    ],
)
def test_what_breaks_pynq(kria: Make, package: str, version: str, reason: str, fix: str) -> None:
    examined = examine(kria({package: version}))
    check = one(examined, "PYNQ 4.0.0")
    assert check.status == "problem" and f"{package} {version}: " in check.found and reason in check.found
    assert check.fix == fix and examined.problems == 1


def test_an_optional_job_that_is_half_there_is_a_note(workstation: Make) -> None:
    check = one(examine(workstation({"torch": "1.13.1", "onnx": None})), EXPORT)
    assert (check.status, check.found) == ("note", "not installed: onnx>=1.17")
    assert check.fix == "pip install 'fastcar-edge[export]'"


def test_the_same_without_pynq_is_no_problem(workstation: Make) -> None:
    assert examine(workstation({"setuptools": "82.0.0", "pycparser": "3.0", "numpy": "2.2.0"})).problems == 0


def test_pynq_3_needs_setuptools_at_all(kria: Make) -> None:
    assert one(examine(kria({"pynq": "3.0.1", "setuptools": None})), "PYNQ 3.0.1").fix == "pip install 'setuptools<82'"


def test_onnx_and_pynq_want_different_protobufs(workstation: Make) -> None:
    versions = {"pynq": "4.0.0", "grpcio-tools": "1.64.0", "setuptools": "80.0.0", "pycparser": "2.23"}
    machine = workstation({**versions, "onnx": "1.23.2", "protobuf": "6.33.0"})
    examined = examine(machine)
    check = one(examined, "grpcio-tools 1.64.0")
    assert check.found == "needs protobuf<6.0dev,>=5.26.1, there is protobuf 6.33.0"
    assert check.status == "problem" and "'onnx==1.22.0' 'protobuf>=5.26.1,<6'" in check.fix
    machine.packages.lines["onnx"] = ["protobuf>=6.33"]
    machine.packages.versions["protobuf"] = "5.29.6"
    assert one(examine(machine), "onnx 1.23.2").found == "needs protobuf>=6.33, there is protobuf 5.29.6"


def test_another_conflict_names_the_bound(workstation: Make) -> None:
    machine = workstation({"brevitas": "0.13.4", "dependencies": "3.0"})
    machine = workstation(
        {"brevitas": "0.13.4", "dependencies": "3.0"},
        packages=Packages({**machine.packages.versions}, {"brevitas": ["dependencies==2.0.1"]}),
    )
    check = one(examine(machine), "brevitas 0.13.4")
    assert check.fix == "pip install 'dependencies==2.0.1'"


@pytest.mark.parametrize(("python", "status"), [((3, 9, 9), "problem"), ((3, 12, 1), "ok"), ((3, 13, 0), "note")])
def test_python(workstation: Make, python: tuple, status: str) -> None:
    check = one(examine(workstation(python=python)), "Python")
    assert check.status == status and (check.fix == "") == (status == "ok")
