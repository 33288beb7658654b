"""Energy in what ``generate`` writes, with a board's power sensor in the place of this machine's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_runs import run

from fastcar.toolkit.board.power_sources import PowerRail, PowerSources
from fastcar.toolkit.cli import clip


def test_energy_of_each_frame(bundle_w8a8: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rail = PowerRail("module", lambda: 5.0, total=True)
    monkeypatch.setattr(clip, "open_power_sources", lambda: PowerSources("hwmon", (rail,)))
    outcome = run("generate", bundle_w8a8, "--prompt", "left turn", "--frames", 3, "--out", tmp_path / "clip")
    assert outcome.code == 0, outcome.stderr
    result = json.loads((tmp_path / "clip/result.json").read_text())
    energy = result["energy"]
    assert len(energy["joules_of_frames"]) == 3 and energy["mean_watts"] == pytest.approx(5.0)
    assert energy["joules_total"] >= 5.0 * 0.9 * result["summary"]["seconds"]
    assert energy["rails"] == ["module"]
