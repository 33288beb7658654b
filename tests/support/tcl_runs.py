"""The scripts of the build flow run under tclsh, with the recorder in the place of Vitis HLS and Vivado."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import fastcar
from fastcar.overlays import load_engine
from fastcar.overlays.design import BlockDesign, block_design
from fastcar.overlays.design_tcl import design_tcl
from fastcar.overlays.flow.configure import directives_tcl

__all__ = ["PHASES", "REPORTS", "TCL", "TOOLS", "Flow", "Outcome"]

ROOT = Path(fastcar.__file__).parent
TCL = ROOT / "overlays/tcl"
RECORDER = Path(__file__).with_name("tcl_recorder.tcl")
REPORTS = Path(__file__).parents[1] / "overlays/tcl/reports"
TOOLS = {
    "csim": "hls",
    "csynth": "hls",
    "cosim": "hls",
    "export_ip": "hls",
    "block_design": "vivado",
    "synthesis": "vivado",
    "implementation": "vivado",
    "timing": "vivado",
    "bitstream": "vivado",
}
PHASES = tuple(TOOLS)
US, RS = "\x1f", "\x1e"


@dataclass(frozen=True)
class Outcome:
    """``commands``: each a tuple of words, as they reached the tool."""

    code: int
    out: str
    error: str
    commands: tuple[tuple[str, ...], ...]

    def of(self, name: str) -> list[tuple[str, ...]]:
        return [command[1:] for command in self.commands if command[0] == name]


@dataclass
class Flow:
    """A build in ``folder``. ``reports``: what the tools write; ``environment``: of the recorder."""

    folder: Path
    design: BlockDesign = field(default_factory=lambda: block_design(load_engine("kv260")))
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.reports = self.folder / "vendor"
        shutil.copytree(REPORTS, self.reports)
        self.package.symlink_to(ROOT, target_is_directory=True)  # the checkout may lie in a folder of any name
        (self.folder / "config").mkdir()
        (self.folder / "config/design.tcl").write_text(design_tcl(self.design))
        (self.folder / "config/directives.tcl").write_text(directives_tcl({"attention_.scores": "uram"}))
        (self.folder / "config/engine.golden").write_bytes(b"")

    @property
    def package(self) -> Path:
        return self.folder / "package"

    def arguments(self, phase: str) -> dict[str, str]:
        build, hls, device = self.folder, self.package / "hls", self.design.board.device
        headers = [build / "config", hls, hls / "include", hls / "include/fastcar"]
        engine = {
            "project": build / "hls",
            "top": "fastcar_engine",
            "part": device.part,
            "clock_ns": f"{1000 / self.design.clock_mhz:.6f}",
            "uncertainty": f"{270 / self.design.clock_mhz:.6f}",
            "sources": hls / "engine/engine.cpp",
            "headers": " ".join(map(str, headers)),
        }
        bench = {"bench": hls / "tb/engine_tb.cpp", "data": build / "config/engine.golden"}
        reports = {"reports": build / "reports"}
        vivado = {"project": build / "vivado"}
        values = {
            "csim": engine | bench,
            "csynth": engine | reports | {"directives": build / "config/directives.tcl"},
            "cosim": engine | bench | reports,
            "export_ip": {"project": build / "hls", "ip": build / "ip", "vlnv": "fastcar:hls:fastcar_engine:1.0"},
            "block_design": vivado
            | {
                "part": device.part,
                "board_part": device.board_part,
                "ip": build / "ip",
                "design": build / "config/design.tcl",
            },
            "synthesis": vivado | reports | {"jobs": 2},
            "implementation": vivado | reports | {"jobs": 2},
            "timing": {"checkpoint": build / "vivado/post_route.dcp"} | reports,
            "bitstream": vivado | {"artifacts": build / "artifacts", "name": "fastcar"},
        }
        return {name: str(value) for name, value in values[phase].items()}

    def run(self, phase: str, arguments: list[str] | None = None, **environment: str) -> Outcome:
        """One phase. ``arguments`` None: those of the build."""
        if arguments is None:
            arguments = [word for name, value in self.arguments(phase).items() for word in (f"-{name}", value)]
        record = self.folder / "record"
        record.write_text("")
        recorder = {
            "RECORD": str(record),
            "REPORTS": str(self.reports),
            "FAIL": "",
            "STATUS": "route_design Complete!",
            "PROGRESS": "100%",
            "MHZ": f"{self.design.clock_mhz - 0.003:.6f}",
            "BOARD_PARTS": self.design.board.device.board_part,
        }
        command = ["tclsh", RECORDER, TOOLS[phase], TCL / f"{phase}.tcl", *arguments]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=30,
            cwd=self.folder,
            env={**os.environ, **recorder, **self.environment, **environment},
        )
        words = [tuple(line.split(US)[:-1]) for line in record.read_text().split(RS)[:-1]]
        return Outcome(done.returncode, done.stdout, done.stderr, tuple(words))

    def run_until(self, phase: str) -> None:
        """All phases before this one."""
        for earlier in PHASES[: PHASES.index(phase)]:
            done = self.run(earlier)
            assert done.code == 0, f"{earlier}: {done.error}"

    def change(self, report: str, old: str, new: str) -> None:
        """What the tools will write."""
        path = self.reports / report
        text = path.read_text()
        assert old in text, f"{report} has no {old!r}"
        path.write_text(text.replace(old, new, 1))
