"""Records that were edited, and names of engines that are no folders."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_runs import run

from fastcar.overlays.flow.layout import default_folder
from fastcar.overlays.load import load_engine


@pytest.mark.parametrize("text", ['{"format": 1}', '{"format": 1, "clock": [], "power": 3}'])
def test_a_record_without_what_it_shows(text: str, tmp_path: Path) -> None:
    (tmp_path / "overlay.json").write_text(text)
    outcome = run("overlay", "show", tmp_path)
    assert outcome.code == 2 and "a complete overlay.json" in outcome.stderr and outcome.stdout == ""


@pytest.mark.parametrize("name", ["a/../../../../b", "/etc/x", "a b\n"])
def test_a_name_that_is_no_folder(name: str) -> None:
    engine = load_engine("kv260")
    odd = engine.model_copy(update={"config": engine.config.model_copy(update={"name": name})})
    folder = default_folder(odd)
    assert folder.parent == Path("build/overlays") and not set(" \n/") & set(folder.name)
