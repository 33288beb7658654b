"""The notebook for a board, executed by a real kernel against the emulated device."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import nbformat
import numpy as np
import pytest
from nbclient import NotebookClient
from packed_bundle import packed_copy
from safetensors.numpy import load_file

from fastcar import Bundle, generate
from fastcar.overlays import load_engine
from fastcar.toolkit.settings import ReplaySettings

NOTEBOOK = Path(__file__).parents[2] / "overlays/notebooks/fastcar.ipynb"
PATIENCE_SECONDS = 300  # a cell's; the first run on a machine compiles the engine


@pytest.fixture(scope="module")
def bundle(bundle_w4a8: Path, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    folder = tmp_path_factory.mktemp("packed") / "kv260"
    return Bundle.open(packed_copy(bundle_w4a8, folder, load_engine("kv260")))


def texts(notebook: nbformat.NotebookNode) -> str:
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return "".join(output.text for cell in cells for output in cell.outputs if output.output_type == "stream")


def shown(notebook: nbformat.NotebookNode, kind: str) -> list[str]:
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return [output.data[kind] for cell in cells for output in cell.outputs if kind in output.get("data", {})]


def test_is_stored_clean() -> None:
    """Valid, and without what a run leaves."""
    notebook = nbformat.read(NOTEBOOK, 4)
    nbformat.validate(notebook)
    for cell in notebook.cells:
        assert cell.source.strip()
        assert not cell.get("outputs") and cell.get("execution_count") is None and not cell.metadata
    kinds = [cell.cell_type for cell in notebook.cells]
    assert kinds[::2] == ["markdown"] * len(kinds[::2]) and kinds[1::2] == ["code"] * len(kinds[1::2])


@pytest.mark.slow
def test_runs_on_the_emulated_device(bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No cell fails, the clip is shown in it, interrupts are heard, and the codes are those of onnxruntime."""
    copy = tmp_path / "fastcar.ipynb"
    shutil.copy(NOTEBOOK, copy)
    for name, folder in (("IPYTHONDIR", "ipython"), ("JUPYTER_RUNTIME_DIR", "runtime")):
        monkeypatch.setenv(name, str(tmp_path / folder))
    monkeypatch.setenv("FASTCAR_BUNDLE", str(bundle.path))
    monkeypatch.setenv("FASTCAR_DEVICE", "emulated")
    monkeypatch.delenv("FASTCAR_OVERLAY", raising=False)
    notebook = nbformat.read(copy, 4)
    settings = notebook.cells[1]
    settings.source, changed = re.subn(r"THRESHOLD = [\d.]+", "THRESHOLD = 0.0", settings.source)
    assert changed == 1, "this model's weights are random: with the notebook's own threshold hardly any replays"
    options = {"timeout": PATIENCE_SECONDS, "kernel_name": "python3"}
    NotebookClient(notebook, resources={"metadata": {"path": str(tmp_path)}}, **options).execute()

    said = texts(notebook)
    assert "device             emulated" in said
    assert said.count("passed  ") == 5 and "FAILED" not in said
    assert "waits for interrupt, interrupts lost: 0" in said
    (video,) = [text for text in shown(notebook, "text/html") if "<video" in text]
    assert "data:video/mp4;base64," in video
    assert len(shown(notebook, "image/png")) == 1

    frames, layers = bundle.manifest.frame_layout.frames, bundle.manifest.config.layers
    replay = ReplaySettings.uniform(0.0, layers)
    expected = generate(bundle, "left turn", frames=min(6, frames), seed=1, replay=replay)
    found = load_file(tmp_path / "clip/run.safetensors")
    np.testing.assert_array_equal(found["codes"], expected.codes)
    np.testing.assert_array_equal(found["replay"], expected.replay)
    assert expected.replay.any() and not expected.replay.all()
