"""Machines to examine: a KV260 and a workstation in order, of files, programs and packages that a test can change."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fake_board import write_kria

from fastcar.toolkit.doctor import Check, Examination
from fastcar.toolkit.doctor.machine import Machine

__all__ = ["XMUTIL", "Make", "answers", "kria_in", "one", "workstation_in"]

Make = Callable[..., Machine]

XMUTIL = """\
                     Accelerator          Accel_type                            Base           Base_type   Active_slot

               k26-starter-kits            XRT_FLAT                k26-starter-kits            XRT_FLAT          {slot}
                    kv260-dp                XRT_FLAT                        kv260-dp            XRT_FLAT            -1
"""
PROJECT = [
    "numpy>=1.26",
    "click>=8.1.7",
    'tomli>=2.0; python_version < "3.11"',
    'onnxruntime>=1.23; extra == "emulate"',
    'torch>=2.4; extra == "export"',
    'onnx>=1.17; extra == "export"',
    'onnxruntime>=1.17; extra == "board"',
    'pynq>=3.0.1; extra == "board"',
    'setuptools<82; extra == "board"',
    'pycparser<3; extra == "board"',
    'pytest>=8.0; extra == "dev"',
]
PYNQ = {
    "pynq": ["setuptools>=24.2.0", "pycparser<3", "numpy<2.0", "grpcio-tools==1.64.0"],
    "pynqutils": ["setuptools<=80", "numpy<2.0"],
    "grpcio-tools": ["protobuf <6.0dev,>=5.26.1", "setuptools"],
    "onnx": ["protobuf>=4.25.1", 'Pillow; extra == "reference"'],
}
BOARD = {"fastcar-edge": "0.1.0", "numpy": "1.26.4", "click": "8.5.1", "tomli": "2.5.0", "pynq": "4.0.0"}
BOARD |= {"setuptools": "80.0.0", "pycparser": "2.23", "protobuf": "5.29.6", "pynqutils": "0.1.3"}
BOARD |= {"grpcio-tools": "1.64.0", "onnxruntime": "1.20.1"}
WORKSTATION = {"fastcar-edge": "0.1.0", "numpy": "1.26.4", "click": "8.5.1", "onnxruntime": "1.32.0"}
WORKSTATION |= {"torch": "2.13.0+cpu", "onnx": "1.22.0", "protobuf": "5.29.6"}


class Packages:
    """Versions by name; requirements as of the metadata, which ``more`` changes."""

    def __init__(self, versions: dict[str, str], more: dict[str, list[str]] | None = None) -> None:
        self.versions = versions
        self.lines = {"fastcar-edge": PROJECT, **PYNQ, **(more or {})}

    def version(self, name: str) -> str | None:
        return self.versions.get(name)

    def requires(self, name: str) -> list[str]:
        return self.lines.get(name, []) if name in self.versions else []


def programs(folder: Path, names: Sequence[str]) -> str:
    """A folder for the path with these programs in it, which do nothing."""
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / name).write_text("#!/bin/sh\nexit 1\n")
        (folder / name).chmod(0o755)
    return str(folder)


def answers(table: dict[str, str]) -> Callable[[Sequence[str]], str | None]:
    return lambda command: table.get(" ".join(command))


def one(examined: Examination, name: str) -> Check:
    """The only check of this name."""
    (check,) = [check for check in examined.checks if check.name == name]
    return check


def kria_in(folder: Path) -> Make:
    """Makes a KV260 with Ubuntu 22.04 and PYNQ below ``folder``; keywords replace what a Machine has."""
    root = write_kria(folder / "root")
    said = {"xbutil --version": "Version : 2.13.0\n", "xmutil listapps": XMUTIL.format(slot="-1")}

    def make(versions: dict[str, str | None] | None = None, **changed: Any) -> Machine:
        packages = {name: version for name, version in {**BOARD, **(versions or {})}.items() if version}
        machine = Machine(
            root=root,
            environment={"XILINX_XRT": "/usr", "BOARD": "KV260", "PATH": programs(folder / "bin", ["xmutil"])},
            architecture="aarch64",
            python=(3, 10, 12),
            user=0,
            packages=Packages(packages),
            run=answers(said),
            disk_free=lambda path: 20 << 30,
        )
        return dataclasses.replace(machine, **changed)

    return make


def workstation_in(folder: Path) -> Make:
    """Makes an x86 computer with a compiler, ssh and rsync."""
    (folder / "root").mkdir()

    def make(versions: dict[str, str | None] | None = None, **changed: Any) -> Machine:
        packages = {name: version for name, version in {**WORKSTATION, **(versions or {})}.items() if version}
        machine = Machine(
            root=folder / "root",
            environment={"PATH": programs(folder / "bin", ["g++", "ssh", "rsync"])},
            architecture="x86_64",
            python=(3, 11, 7),
            user=1000,
            packages=Packages(packages),
            run=answers({"g++ --version": "g++ (Debian 12.2.0-14) 12.2.0\nCopyright"}),
            disk_free=lambda path: 20 << 30,
        )
        return dataclasses.replace(machine, **changed)

    return make
