"""The wheel of this project that a release carries: built from the checkout, or given."""

from __future__ import annotations

import configparser
import importlib.util
import os
import shutil
import sys
import zipfile
from pathlib import Path

from ..errors import UsageError
from .child import run_child
from .errors import DeployError

__all__ = ["build_wheel", "check_wheel", "checkout", "wheel_for"]

PACKAGE = Path(__file__).parents[2]
# The same sources give the same bytes, and with them the same release: no time of a build goes into the wheel.
EPOCH = {"SOURCE_DATE_EPOCH": "1577836800"}
GENERATED = shutil.ignore_patterns("__pycache__", "*.pyc", ".*", "build")


def wheel_for(given: Path | None, work: Path) -> Path:
    """``given``, or one built below ``work``. UsageError, DeployError as ``check_wheel`` and ``build_wheel``."""
    if given is not None:
        return check_wheel(given)
    root = checkout()
    assert root is not None, "checked before any work"
    return build_wheel(root, work)


def checkout() -> Path | None:
    """The folder this package runs from, if it is a checkout, which a wheel can be built from."""
    return PACKAGE if (PACKAGE / "setup.cfg").is_file() and (PACKAGE / "pyproject.toml").is_file() else None


def check_wheel(path: Path) -> Path:
    """UsageError if the file is no wheel of this project."""
    expected, fix = "a wheel of fastcar-edge", "Give one with --wheel FILE."
    if not path.is_file():
        raise UsageError(path, "no such file", expected, fix)
    if not path.name.startswith("fastcar_edge-") or path.suffix != ".whl":
        raise UsageError(path, "a file of another name", "fastcar_edge-VERSION-py3-none-any.whl", fix)
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (OSError, zipfile.BadZipFile) as error:
        raise UsageError(path, str(error).lower(), expected, fix) from error
    if "fastcar/__init__.py" not in names:
        raise UsageError(path, "no package fastcar in it", expected, fix)
    return path


def build_wheel(root: Path, work: Path) -> Path:
    """Build the wheel of the checkout ``root`` below ``work``; DeployError with pip's last line if it fails.

    From a copy: a build leaves folders in its sources and takes what an earlier one left there for sources.
    """
    source, out = work / "source", work / "built"
    _copy_sources(root, source)
    isolation = ["--no-build-isolation"] if _can_build_here() else []
    options = ["--no-deps", "--no-cache-dir", "--disable-pip-version-check", *isolation]
    command = [sys.executable, "-m", "pip", "wheel", *options, "-w", str(out), "."]
    reply = run_child(command, cwd=source, env=EPOCH)
    built = sorted(out.glob("*.whl"))
    if reply.code != 0 or len(built) != 1:
        raise DeployError(
            root, f"no wheel could be built ({reply.last_line})", "pip and setuptools that work",
            "Install them, or give a wheel with --wheel FILE.",
        )  # fmt: skip
    return built[0]


def _copy_sources(root: Path, source: Path) -> None:
    """The files at the root and the folders that hold packages."""
    config = configparser.ConfigParser()
    config.read(root / "setup.cfg", "utf-8")
    packages = config["options"]["packages"].split()
    source.mkdir(parents=True)
    for file in root.iterdir():
        if file.is_file() and not file.name.startswith("."):
            shutil.copy(file, source)
    for folder in sorted({package.split(".")[1] for package in packages if "." in package}):
        shutil.copytree(root / folder, source / folder, ignore=GENERATED)
    for path in (source, *source.rglob("*")):  # modes go into the wheel, and a checkout's depend on its user
        runs = path.is_dir() or os.access(path, os.X_OK)
        path.chmod(0o755 if runs else 0o644)


def _can_build_here() -> bool:
    """Whether setuptools is there and can write wheels; older ones need the package wheel for it."""
    find = importlib.util.find_spec
    if find("setuptools") is None:
        return False
    return find("setuptools.command.bdist_wheel") is not None or find("wheel") is not None
