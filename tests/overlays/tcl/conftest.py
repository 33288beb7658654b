"""A finished build under the recorder, and copies of it to run a phase in again."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tcl_runs import PHASES, Flow, Outcome


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Flow, dict[str, Outcome]]:
    """Every phase in order; not to be changed."""
    if shutil.which("tclsh") is None:
        pytest.skip("no tclsh")
    flow = Flow(tmp_path_factory.mktemp("build"))
    outcomes = {}
    for phase in PHASES:
        outcomes[phase] = flow.run(phase)
        assert outcomes[phase].code == 0, f"{phase}: {outcomes[phase].error}"
    return flow, outcomes


@pytest.fixture
def copy(finished: tuple[Flow, dict[str, Outcome]], tmp_path: Path) -> Callable[[], Flow]:
    """Makes builds in which every phase was done, to run any of them again."""

    def make() -> Flow:
        folder = tmp_path / "copy"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        flow = Flow(folder)
        shutil.copytree(finished[0].folder, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("package"))
        return flow

    return make
