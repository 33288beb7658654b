"""From a checkpoint that transformers saved to clips: exported, generated, the same bits in every back end."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cli_runs import run
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM

from fastcar import Bundle, generate
from fastcar.export.huggingface.layout import NAME
from fastcar.export.importers import load_model
from fastcar.export.palette import code_colours
from fastcar.export.pipeline import export_model, prepare_export
from fastcar.toolkit.backends.registry import DeviceChoice, open_backend
from fastcar.toolkit.errors import CheckpointError, UsageError
from fastcar.toolkit.settings import ReplaySettings
from fastcar.toolkit.video.decode import FrameDecoder

LAYOUT: dict[str, Any] = {
    "name": "small",
    "frame_layout": {"prompt_length": 3, "frames": 3, "grid": [4, 5], "code_offset": 8, "codes": 40},
    "prompt": {"pad": 0, "start": 1, "words": {"left": 2, "right": 50}, "phrases": ["left", "right"]},
    "sampling": {"temperature": 1.0, "top_k": 20, "guidance": 2.0},
    "frame_rate": 6.0,
}


@pytest.fixture(scope="module")
def model() -> LlamaForCausalLM:
    return small_llama()


def small_llama(**changes: bool) -> LlamaForCausalLM:
    torch.manual_seed(3)
    scaling = {"rope_type": "llama3", "rope_theta": 10_000.0, "factor": 2.0, "low_freq_factor": 1.0}
    scaling |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 32}
    config = LlamaConfig(
        vocab_size=52, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, max_position_embeddings=64, initializer_range=0.2, rope_parameters=scaling,
        tie_word_embeddings=True, **changes,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    for name, parameter in model.named_parameters():
        if name.endswith(".bias"):  # which transformers begins with zeros
            torch.nn.init.normal_(parameter, 0, 0.2)
    return model


@pytest.fixture
def folder(model: LlamaForCausalLM, tmp_path: Path) -> Path:
    return saved(model, tmp_path / "a model")


def saved(model: LlamaForCausalLM, place: Path) -> Path:
    model.save_pretrained(place, max_shard_size="40KB")
    (place / NAME).write_text(json.dumps(LAYOUT))
    return place


def edit(folder: Path, change: Callable[[dict], object]) -> None:
    layout = json.loads((folder / NAME).read_text())
    change(layout)
    (folder / NAME).write_text(json.dumps(layout))


@pytest.mark.parametrize("biases", [(), ("attention_bias",), ("attention_bias", "mlp_bias")])
def test_the_same_bits_and_nearly_the_float_models(biases: tuple[str, ...], tmp_path: Path) -> None:
    model = small_llama(**dict.fromkeys(biases, True))
    folder = saved(model, tmp_path / "a model")
    bundle = export_model(folder, tmp_path / "bundle", recipe="w8a8", board="kv260")
    manifest = bundle.manifest
    assert manifest.config.rope_scaling.type == "llama3" and manifest.sampling.guided
    assert "calibrated on random codes" in " ".join(manifest.record["quantization_notes"])
    assert "cross_entropy_fp32" not in manifest.record

    replay = ReplaySettings.uniform(0.0, 2)
    board = open_backend("pynq", bundle, device=DeviceChoice("emulated"))
    runs = [
        generate(bundle, "left", seed=5, replay=replay, backend=backend, record_logits=True)
        for backend in ("onnxruntime", "reference", "csim", board)
    ]
    board.close()
    for other in runs[1:]:
        for name in ("codes", "tas", "replay", "logits"):
            np.testing.assert_array_equal(getattr(runs[0], name), getattr(other, name), err_msg=name)
    assert runs[0].codes.shape == (1, 3, 20) and runs[0].replay.any()

    dense = generate(bundle, "left", seed=5, record_logits=True)
    prompts = bundle.prompts
    codes = dense.codes.reshape(-1)[:-1] + 8
    tokens = [[*prompt, *codes] for prompt in (prompts.encode("left", 3), prompts.unconditional(3))]
    with torch.no_grad():
        conditional, free = model(torch.tensor(np.array(tokens))).logits[:, 2:, 8:48]
    expected = (free + 2.0 * (conditional - free)).numpy()
    found = dense.logits.reshape(-1, 40)
    assert np.corrcoef(found.ravel(), expected.ravel())[0, 1] > 0.99


def test_from_the_command_line(folder: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "layout.json"
    (folder / NAME).rename(elsewhere)
    outcome = run("export", folder, "--out", tmp_path / "out")
    assert outcome.code == 2 and "frame_layout.json: cannot be read" in outcome.error
    assert '"frame_layout": {"prompt_length"' in outcome.error and "--frame-layout" in outcome.error
    outcome = run(
        "export", folder, "--frame-layout", elsewhere, "--recipe", "w4a8", "--out", tmp_path / "out", "--json"
    )
    assert outcome.code == 0, outcome.stderr
    outcome = run("generate", tmp_path / "out", "--prompt", "right", "--frames", 2, "--out", tmp_path / "clip")
    assert outcome.code == 0, outcome.stderr
    assert (tmp_path / "clip/video.mp4").stat().st_size > 0
    outcome = run("plan", tmp_path / "out", "--board", "kv260", "--out", tmp_path / "plan")
    assert outcome.code == 0, outcome.stderr


def test_codes_are_shown_as_colours(folder: Path, tmp_path: Path) -> None:
    """Of the decoder in the bundle: squares of one colour each, and no two codes alike."""
    bundle: Bundle = export_model(folder, tmp_path / "bundle")
    frames = FrameDecoder(bundle)(np.arange(40).reshape(2, 4, 5))
    assert frames.shape == (2, 32, 40, 3)
    squares = frames.reshape(2, 4, 8, 5, 8, 3).swapaxes(2, 3).reshape(40, 64, 3)
    assert (squares == squares[:, :1]).all()
    assert len({tuple(colour) for colour in squares[:, 0]}) == 40


@pytest.mark.parametrize("codes", [2, 1024, 16_384])
def test_colours_of_neighbouring_codes_differ(codes: int) -> None:
    colours = code_colours(codes).codebook.weight
    assert colours.min() >= 0 and colours.max() <= 1
    assert (colours[1:] - colours[:-1]).abs().max(dim=1).values.min() > 0.05


def test_clips_of_the_user(folder: Path, tmp_path: Path) -> None:
    clips = {"codes": torch.randint(0, 40, (5, 3, 20), dtype=torch.int32), "prompts": torch.tensor([[2, 0, 1]] * 5)}
    save_file(clips, folder / "clips.safetensors")
    edit(folder, lambda layout: layout.update(clips="clips.safetensors"))
    imported = load_model(folder)
    assert torch.equal(imported.calibration[:, 3:], clips["codes"].reshape(5, 60) + 8)
    assert len(imported.notes) == 1
    record = export_model(folder, tmp_path / "bundle").manifest.record
    assert abs(record["cross_entropy_change_percent"]) < 5
    save_file({**clips, "codes": clips["codes"] + 1}, folder / "clips.safetensors")
    if int(clips["codes"].max()) == 39:
        with pytest.raises(CheckpointError, match="tensor codes holds 40; expected less than 40"):
            load_model(folder)


def test_clips_that_it_generated(folder: Path, tmp_path: Path) -> None:
    """Instead of random codes; clips that the layout names are what quality is measured on then."""
    export_model(folder, tmp_path / "random")
    prompts = ("--prompt", "left", "--prompt", "right")
    outcome = run("generate", tmp_path / "random", *prompts, "--frames", 2, "--out", tmp_path / "own")
    assert outcome.code == 0, outcome.stderr
    outcome = run("export", folder, "--calibrate-on", tmp_path / "own", "--out", tmp_path / "out", "--json")
    notes = json.loads(outcome.stdout)["record"]["quantization_notes"]
    assert notes[1:] == ["calibrated on 2 clips of 2 frames in own, generated by small in w8a8"]
    clips = {"codes": torch.randint(0, 40, (5, 3, 20), dtype=torch.int32), "prompts": torch.tensor([[2, 0, 1]] * 5)}
    save_file(clips, folder / "clips.safetensors")
    edit(folder, lambda layout: layout.update(clips="clips.safetensors"))
    imported = prepare_export(folder, tmp_path / "out", calibrate_on=tmp_path / "own", overwrite=True).imported
    codes = load_file(tmp_path / "own/run.safetensors")["codes"].long()
    assert torch.equal(imported.calibration[:, 3:], codes.reshape(2, 40) + 8)
    assert imported.calibration[:, :3].tolist() == [[2, 0, 1], [50, 0, 1]]
    assert torch.equal(imported.held_out[:, 3:], clips["codes"].reshape(5, 60).long() + 8)


BAD_CLIPS: dict[str, tuple[dict[str, torch.Tensor], str]] = {
    "a code below 0": ({"codes": torch.full((2, 3, 20), -1)}, "codes holds -1"),
    "a prompt below 0": ({"prompts": torch.tensor([[2, -5, 1]] * 2)}, "prompts holds -5"),
    "fractions": ({"codes": torch.full((2, 3, 20), 1.5)}, "codes is of torch.float32; expected whole numbers"),
    "half precision": ({"prompts": torch.ones((2, 3), dtype=torch.bfloat16)}, "prompts is of torch.bfloat16"),
    "truths": ({"codes": torch.ones((2, 3, 20), dtype=torch.bool)}, "codes is of torch.bool"),
    "more prompts": ({"prompts": torch.ones((3, 3), dtype=torch.int64)}, "2 clips in codes, 3 in prompts"),
}


@pytest.mark.parametrize("kind", BAD_CLIPS)
def test_bad_clips(kind: str, folder: Path) -> None:
    change, message = BAD_CLIPS[kind]
    good = {"codes": torch.zeros((2, 3, 20), dtype=torch.int64), "prompts": torch.ones((2, 3), dtype=torch.int64)}
    save_file({**good, **change}, folder / "clips.safetensors")
    edit(folder, lambda layout: layout.update(clips="clips.safetensors"))
    with pytest.raises(CheckpointError, match=message):
        load_model(folder)


BAD: dict[str, tuple[Callable[[dict], object], str]] = {
    "no grid": (lambda layout: layout["frame_layout"].pop("grid"), "frame_layout.grid: Field required"),
    "unknown key": (lambda layout: layout.update(fps=3), "fps: Extra inputs are not permitted"),
    "codes beyond the vocabulary": (
        lambda layout: layout["frame_layout"].update(codes=45), "codes up to 52; expected less than vocab_size 52",
    ),
    "longer than the model": (
        lambda layout: layout["frame_layout"].update(frames=4), "a clip of 83 positions; expected at most",
    ),
    "a code as a word": (lambda layout: layout["prompt"]["words"].update(stop=8), "prompt token 8; expected tokens"),
    "a word beyond": (lambda layout: layout["prompt"].update(pad=52), "prompt token 52"),
    "no phrase": (lambda layout: layout["prompt"].update(phrases=[]), "no phrases"),
    "a phrase of others": (lambda layout: layout["prompt"].update(phrases=["up"]), "phrase 'up': unknown word 'up'"),
    "sampling of no sense": (lambda layout: layout.update(sampling={"top_p": 2.0}), "sampling.top-p: 2.0"),
    "a number in words": (lambda layout: layout["frame_layout"].update(frames="3"), "frame_layout.frames: Input"),
    "a truth for a number": (lambda layout: layout["prompt"].update(pad=True), "prompt.pad: Input should be"),
    "frames without end": (lambda layout: layout.update(frame_rate=float("inf")), "frame_rate: Input should be less"),
    "clips without a name": (lambda layout: layout.update(clips=""), "clips: String should have at least 1"),
    "a grid without end": (
        lambda layout: layout["frame_layout"].update(grid=[2**31 - 1] * 2), "frame_layout: 13835058042397261830 pos",
    ),
    "clips that are not there": (lambda layout: layout.update(clips="none.safetensors"), "none.safetensors: no such"),
    "clips of nothing": (lambda layout: layout.update(clips=NAME), "not the name of weights; expected"),
}  # fmt: skip


@pytest.mark.parametrize("kind", BAD)
def test_bad_layouts(kind: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before a weight is read, and nothing is left behind."""
    monkeypatch.setattr("fastcar.export.huggingface.weights.read_finite", lambda *_: pytest.fail("nothing may be read"))
    change, told = BAD[kind]
    edit(folder, change)
    with pytest.raises(CheckpointError) as caught:
        export_model(folder, tmp_path / "out")
    assert told in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_a_layout_for_a_checkpoint_that_has_its_own(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--frame-layout: given for a checkpoint that has its own"):
        export_model("car", tmp_path / "out", frame_layout=tmp_path / "layout.json")


def test_room_beyond_the_positions_of_the_training(folder: Path) -> None:
    """Longer clips than max_position_embeddings are asked for by name; trained ones of that length cannot be."""
    assert load_model(folder, max_frames=5).layout.positions == 3 + 5 * 20
    edit(folder, lambda layout: layout["frame_layout"].update(max_frames=6))
    layouts = [load_model(folder).layout, load_model(folder, max_frames=4).layout]
    assert [(one.frames, one.room) for one in layouts] == [(3, 6), (3, 4)], "the option has the last word"
    edit(folder, lambda layout: layout["frame_layout"].update(frames=4))
    with pytest.raises(CheckpointError, match="a clip of 83 positions; expected at most max_position_embeddings, 64"):
        load_model(folder)
    edit(folder, lambda layout: layout["frame_layout"].update(max_frames=2))
    with pytest.raises(CheckpointError, match="max_frames 2 must be at least frames 4"):
        load_model(folder)
