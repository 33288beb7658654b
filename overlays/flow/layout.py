"""A build: the engine, its board, the folder it is built in, and the names of the files there."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from ...boards import Board
from ...toolkit.errors import UsageError
from ..design import ENGINE, VLNV, BlockDesign, block_design
from ..load import Engine

__all__ = ["ENGINE_VLNV", "NAME", "PACKAGE", "TCL", "Build", "default_folder"]

ROOT = Path(__file__).parents[2]
TCL = ROOT / "overlays/tcl"
PACKAGE = "package"  # link to the project, where its own path is nothing for the tools
ENGINE_VLNV = VLNV[ENGINE]
NAME = "fastcar"  # of bitstream, handoff and device tree overlay
UNSAFE = re.compile(r"[^A-Za-z0-9_./+@%=:~-]")
"""What the vendor's tools, their Tcl or their make files may stumble over in a path."""


def default_folder(engine: Engine) -> Path:
    """Below where it is called, whatever the engine's name: slashes in it make no folders."""
    word = re.sub(r"[^\w.+=-]+", "_", engine.config.name)[:80]
    return Path("build/overlays") / f"{word}-{engine.config.build_id:08x}"


@dataclass(frozen=True)
class Build:
    """``folder``: absolute. ``jobs``: runs that Vivado may have at once; results do not depend on it."""

    engine: Engine
    board: Board
    folder: Path
    jobs: int = 2

    def __post_init__(self) -> None:
        if unsafe := UNSAFE.search(str(self.folder)):
            found = f"{unsafe[0]!r} in the path"
            expected = "letters, digits and . _ + - @ % = : ~ alone, for the sake of the vendor's tools"
            raise UsageError(self.folder, found, expected, "Choose another --out.")

    @property
    def design(self) -> BlockDesign:
        return block_design(self.engine)

    @property
    def package(self) -> Path:
        """The project as the tools are told of it: through a link where its own path has a space or the like."""
        return self.folder / PACKAGE if UNSAFE.search(str(ROOT)) else ROOT

    def link_package(self) -> None:
        """Makes the link, where one is needed."""
        if self.package == ROOT or (self.package.is_symlink() and self.package.resolve() == ROOT.resolve()):
            return
        self.package.unlink(missing_ok=True)
        self.package.symlink_to(ROOT.resolve(), target_is_directory=True)

    @property
    def config(self) -> Path:
        return self.folder / "config"

    @property
    def reports(self) -> Path:
        return self.folder / "reports"

    @property
    def artifacts(self) -> Path:
        return self.folder / "artifacts"

    @property
    def clock_ns(self) -> float:
        """Period of the engine's clock."""
        return 1e3 / self.engine.config.clock_mhz

    def artifact(self, suffix: str) -> Path:
        """``suffix`` as in ``.bit``."""
        return self.artifacts / f"{NAME}{suffix}"

    def log(self, phase: str) -> Path:
        return self.folder / "logs" / f"{phase}.log"

    def stamp(self, phase: str) -> Path:
        return self.folder / "done" / f"{phase}.json"
