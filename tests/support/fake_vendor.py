"""Vitis HLS, Vivado and dtc as small scripts on a path of their own: they tell a version and behave as they are told.

A script that is to run notes the phase in ``journal``, then does what ``behaviour/PHASE`` says: fail, crash, hang,
nothing; without such a file it copies ``products/PHASE`` into the folder it runs in.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from vendor_reports import write_reports

from fastcar.overlays.bitfile import write_emulated_bitfile
from fastcar.overlays.flow.collect import ROUTED
from fastcar.overlays.flow.layout import Build
from fastcar.overlays.flow.phases import PHASES
from fastcar.overlays.hwh import handoff_text

__all__ = ["FakeVendor", "tool_script"]

RUN = """\
for last; do :; done
phase=$(basename "$last" | sed 's/[.].*//; s/^fastcar$/device_tree/')
echo "$phase" >> {root}/journal
echo "INFO: [Fake 1-1] $phase begins"
case $(cat {root}/behaviour/"$phase" 2>/dev/null) in
    fail) echo "ERROR: [Fake 17-69] $phase: not enough luck"; echo "INFO: exiting"; exit 1 ;;
    crash) kill -SEGV $$ ;;
    hang) sleep 600 & echo $! > {root}/child; wait ;;
    nothing) exit 0 ;;
esac
[ ! -d {root}/products/"$phase" ] || cp -r {root}/products/"$phase"/. .
"""


def tool_script(path: Path, version_line: str, body: str = "exit 0\n") -> None:
    """An executable that answers a question for its version with ``version_line``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    question = f'case "$1" in -version|--version) echo "{version_line}"; exit 0 ;; esac\n'
    path.write_text(f"#!/bin/sh\n{question}{body}", "utf-8")
    path.chmod(0o755)


class FakeVendor:
    """In ``root``; ``path``: for PATH. The system's own tools stay on it behind, but for the vendor's."""

    def __init__(self, root: Path, version: str = "2022.2") -> None:
        self.root, self.bin = root, root / "bin"
        self.path = f"{self.bin}:/usr/bin:/bin"
        (root / "behaviour").mkdir(parents=True)
        self.install(version)

    def install(self, version: str, hls: str = "vitis_hls") -> None:
        shutil.rmtree(self.bin, ignore_errors=True)
        run = RUN.format(root=self.root)
        tool_script(self.bin / hls, f"Vitis HLS - High-Level Synthesis from C, C++ and OpenCL v{version} (64-bit)", run)
        tool_script(self.bin / "vivado", f"Vivado v{version} (64-bit)", run)
        tool_script(self.bin / "dtc", "Version: DTC 1.6.1", run)

    def produce(self, build: Build) -> None:
        """What every phase of the build will make, from now on."""
        for phase in PHASES:
            for name in phase.makes if phase.tool != "python" else ():
                self._product(phase.name, name, f"{phase.name} made {name}\n")
        design = build.design
        reports = self.root / "reports"
        write_reports(reports, f"{design.name}_wrapper", build.board.device.part)
        makers = {"csynth.xml": "csynth", "cosim.rpt": "cosim", **dict.fromkeys(ROUTED, "implementation")}
        for name, phase in makers.items():
            self._product(phase, f"reports/{name}", (reports / name).read_text("utf-8"))
        self._product("bitstream", "artifacts/fastcar.hwh", handoff_text(design))
        write_emulated_bitfile(self.root / "products/bitstream/artifacts/fastcar.bit", design)
        for name in ("fastcar.dts", "shell.json"):  # made before the compiler runs
            (self.root / "products/device_tree/artifacts" / name).unlink()

    def behave(self, phase: str, how: str | None) -> None:
        file = self.root / "behaviour" / phase
        file.unlink(missing_ok=True)
        if how:
            file.write_text(how)

    @property
    def journal(self) -> list[str]:
        """Phases in the order the tools ran them."""
        file = self.root / "journal"
        return file.read_text().split() if file.exists() else []

    def forget(self) -> None:
        (self.root / "journal").unlink(missing_ok=True)

    def _product(self, phase: str, name: str, text: str) -> None:
        file = self.root / "products" / phase / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")
