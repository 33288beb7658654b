"""All rules over all files: one call for the command line and the tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from ...toolkit.errors import UsageError
from .calls import check_recursion
from .findings import Finding
from .loops import check_loops
from .parser import parse
from .placement import check_placement
from .ports import check_ports
from .project import Project
from .subset import check_subset
from .vocabulary import check_vocabulary

__all__ = ["CHECKS", "kernels", "lint_files"]

CHECKS: tuple[Callable[[Project], Iterator[Finding]], ...] = (
    check_vocabulary,
    check_placement,
    check_loops,
    check_ports,
    check_recursion,
    check_subset,
)

_SUFFIXES = frozenset([".h", ".hpp", ".cpp"])
_HLS = Path(__file__).parents[1]


def kernels() -> list[Path]:
    """The project's own: headers, the engine, the top functions of single kernels."""
    return _sources([_HLS / "include" / "fastcar", _HLS / "engine", _HLS / "top"])


def lint_files(paths: Iterable[str | Path]) -> list[Finding]:
    """Findings of files, and of the C++ sources in folders, in order of place.

    Checked together, as kernels use each other's constants and functions. UsageError on a path that cannot be read.
    """
    sources = []
    for path in _sources([Path(path) for path in paths]):
        try:
            sources.append(parse(path.read_text("utf-8"), str(path)))
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(path, f"unreadable ({error})", "a C++ source in UTF-8", "Correct the path.") from error
    project = Project(sources)
    return sorted({finding for check in CHECKS for finding in check(project)})


def _sources(paths: list[Path]) -> list[Path]:
    files: list[Path] = []
    for path in paths:
        inside = sorted(file for file in path.rglob("*") if file.suffix in _SUFFIXES) if path.is_dir() else [path]
        files += [file for file in inside if file not in files]
    return files
