"""An export that was killed or interrupted goes on where it was, and makes the same bundle as one that was not."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from fastcar.export.pipeline import export_model, prepare_export
from fastcar.export.quantize.layers import LayerQuantizer
from fastcar.export.unfinished import finished_layers
from fastcar.toolkit.bundle.bundle import GOLDEN_NODES, Bundle
from fastcar.toolkit.errors import CheckpointError, OutputError, UsageError

WAIT = """
import time
from fastcar.export.quantize.layers import LayerQuantizer
layer = LayerQuantizer.layer
def slow(self, index):
    if index:
        print("in layer 1", flush=True)
        time.sleep(60)
    return layer(self, index)
LayerQuantizer.layer = slow
from fastcar.toolkit.cli.app import main
main()
"""


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The layers that are quantized from here on."""
    layers: list[int] = []
    layer = LayerQuantizer.layer

    def count(self: LayerQuantizer, index: int):
        layers.append(index)
        return layer(self, index)

    monkeypatch.setattr(LayerQuantizer, "layer", count)
    return layers


def start(car_like: Path, out: Path, *options: str) -> subprocess.Popen[str]:
    """An export in a process of its own that has finished layer 0 and is in layer 1."""
    command = [sys.executable, "-c", WAIT, "export", str(car_like), "--out", str(out), *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "in layer 1\n"
    return process


@pytest.mark.parametrize("recipe", ["w8a8", "w4a8"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["KILL", "TERM"])
def test_a_killed_export_goes_on(
    car_like: Path, tmp_path: Path, number: int, recipe: str, counted: list[int], request: pytest.FixtureRequest
):
    with start(car_like, tmp_path / "out", "--recipe", recipe) as process:
        process.send_signal(number)
        _, stderr = process.communicate(timeout=60)
    (folder,) = tmp_path.iterdir()
    assert finished_layers(folder) == 1 and not (tmp_path / "out").exists()
    if number == signal.SIGTERM:
        assert process.returncode == 130
        assert stderr.splitlines()[-1].endswith(
            f"1 of 2 layers are finished and kept in {folder}: the same command goes on from there"
        )
    made = export_model(car_like, tmp_path / "out", recipe=recipe)
    assert counted == [1] and [path.name for path in tmp_path.iterdir()] == ["out"]
    expected = Bundle.open(request.getfixturevalue(f"bundle_{recipe}")).manifest
    assert made.manifest.files == expected.files and made.manifest.record == expected.record


@pytest.mark.parametrize("change", ["settings", "checkpoint", "journal"])
def test_other_settings_or_weights_begin_anew(car_like: Path, tmp_path: Path, counted: list[int], change: str):
    source = Path(shutil.copytree(car_like, tmp_path / "source"))
    with start(source, tmp_path / "out") as process:
        process.kill()
    (folder,) = (path for path in tmp_path.iterdir() if path.name.startswith("."))
    recipe = "w8a8"
    if change == "settings":
        recipe = "w4a8"
    elif change == "checkpoint":
        os.utime(source / "backbone.safetensors", (time.time() + 9, time.time() + 9))
    else:
        (folder / "unfinished.json").write_text('{"layers": 1, "no')
    export_model(source, tmp_path / "out", recipe=recipe).verify()
    assert counted == [0, 1] and {path.name for path in tmp_path.iterdir()} == {"source", "out"}


def test_an_interrupt_before_the_first_layer_leaves_nothing(
    car_like: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def interrupt(self: LayerQuantizer, index: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(LayerQuantizer, "layer", interrupt)
    with pytest.raises(KeyboardInterrupt) as caught:
        export_model(car_like, tmp_path / "new" / "out")
    assert not str(caught.value) and not list(tmp_path.iterdir())


def test_two_at_once_are_refused(car_like: Path, tmp_path: Path):
    with start(car_like, tmp_path / "out") as process:
        for recipe in ("w8a8", "w4a8"):
            with pytest.raises(OutputError, match="is being made by another export right now"):
                export_model(car_like, tmp_path / "out", recipe=recipe)
        process.kill()
    export_model(car_like, tmp_path / "out").verify()


def test_the_first_layers_only(car_like: Path, tmp_path: Path):
    made = export_model(car_like, tmp_path / "one", layers=1)
    assert made.manifest.config.layers == 1 and len(made.model()[0].layers) == 1
    assert "the first 1 of 2 layers only" in made.manifest.record["quantization_notes"][0]
    for layers in (0, 3):
        with pytest.raises(UsageError, match=rf"--layers: {layers}; expected 1 to 2"):
            export_model(car_like, tmp_path / "none", layers=layers)
    with pytest.raises(UsageError, match="--calibration-clips: 0"):
        export_model(car_like, tmp_path / "none", calibration_clips=0)


@pytest.mark.parametrize(("recipe", "board"), [("w8a8", None), ("w4a8", "kv260")])
def test_the_disk_it_takes_is_known_before(
    car_like: Path, tmp_path: Path, recipe: str, board: str | None, monkeypatch: pytest.MonkeyPatch
):
    """But for what a small allowance is made for."""
    export = prepare_export(car_like, tmp_path / "out", recipe=recipe, board=board)
    seen = []
    finish = LayerQuantizer.drop

    def measured(self: LayerQuantizer, index: int) -> None:
        seen.append(sum(states.bytes for states in self.states.values()))
        finish(self, index)

    monkeypatch.setattr(LayerQuantizer, "drop", measured)
    made = export.run(lambda stage, done, total: None)
    names = ["backbone.safetensors", *(["program.bin", "weights.bin"] if board else [])]
    stored = sum(made.manifest.files[name].bytes for name in names)
    stored += load_file(made.path / "golden" / "clip.safetensors")["logits"].nbytes
    stored += (made.path / GOLDEN_NODES).stat().st_size
    header = 30_000  # of the weight file: names and places
    assert 0 <= stored + 2 * max(seen) + (64 << 20) - export.needs.disk < header


def test_names_that_cannot_be_are_refused_before_any_work(car_like: Path, tmp_path: Path):
    for model, out, option in (("bad\udcff", "out", "model"), (car_like, "bad\udcff", "out")):
        with pytest.raises(UsageError, match=rf"^{option}: .*udcff.*; expected a name in UTF-8"):
            prepare_export(model, tmp_path / out)
    with pytest.raises(UsageError, match="engine: '' is not known"):
        prepare_export(car_like, tmp_path / "out", board="")


def test_activations_beyond_float32_are_told_by_their_layer(car_like: Path, tmp_path: Path):
    source = Path(shutil.copytree(car_like, tmp_path / "source"))
    tensors = {name: tensor.float() for name, tensor in load_file(source / "backbone.safetensors").items()}
    tensors["model.layers.1.mlp.up_proj.weight"] *= 1e38
    save_file(tensors, source / "backbone.safetensors")
    with pytest.raises(CheckpointError, match=r"^layers\.1: \S+: values beyond float32 on the calibration clips"):
        export_model(source, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["source"]
