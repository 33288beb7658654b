"""``fastcar evaluate``: what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_runs import run


@pytest.mark.parametrize("frames", [-1, 1, 99])
def test_frames_are_checked_before_the_exports(tmp_path: Path, frames: int, monkeypatch) -> None:
    monkeypatch.setattr("fastcar.toolkit.cli.evaluate._bundle", lambda *_: pytest.fail("no work may start"))
    outcome = run("evaluate", "--out", tmp_path / "out", "--frames", frames)
    assert outcome.code == 2 and f"--frames: {frames}; expected" in outcome.error
    assert list(tmp_path.iterdir()) == []
