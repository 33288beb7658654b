"""A build with tools that are not the vendor's."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_vendor import FakeVendor

from fastcar.overlays.flow import layout, phases
from fastcar.overlays.flow.choose import choose_engine
from fastcar.overlays.flow.layout import Build


@pytest.fixture
def scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of scripts that can be changed; the fake tools do not read what is in them."""
    folder = tmp_path / "tcl"
    folder.mkdir()
    for phase in phases.PHASES:
        if phase.tool in ("hls", "vivado"):
            (folder / f"{phase.name}.tcl").write_text(f"# {phase.name}\n")
    (folder / "arguments.tcl").write_text("# common\n")
    for module in (layout, phases):
        monkeypatch.setattr(module, "TCL", folder)
    return folder


@pytest.fixture
def build(tmp_path: Path, scripts: Path) -> Build:
    return Build(*choose_engine("kv260", None, {}), tmp_path / "built")


@pytest.fixture
def vendor(tmp_path: Path, build: Build, monkeypatch: pytest.MonkeyPatch) -> FakeVendor:
    """On the path; makes what ``build`` wants."""
    fake = FakeVendor(tmp_path / "vendor")
    fake.produce(build)
    monkeypatch.setenv("PATH", fake.path)
    return fake
