"""VILA-U from a checkpoint to codes: against a plain reading whose backbone is that of transformers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import vila_u_reference as reference
from cli_runs import run
from safetensors.torch import load_file, save_file
from small_engine import small_engine
from strong_weights import strengthened
from transformers import LlamaForCausalLM

from fastcar import generate
from fastcar.boards import load_board
from fastcar.export.pipeline import export_model, prepare_export
from fastcar.export.quantize.layers import LayerQuantizer
from fastcar.export.shards import TensorStore
from fastcar.export.vila_u.synthetic import write_checkpoint
from fastcar.hls.modes import count_modes
from fastcar.overlays.load import Engine, engine_text
from fastcar.toolkit.backends.registry import open_backend
from fastcar.toolkit.bundle.bundle import GOLDEN_NODES, Bundle
from fastcar.toolkit.config import PADDING
from fastcar.toolkit.errors import UsageError
from fastcar.toolkit.evaluation.moved import MovedBytes
from fastcar.toolkit.generation.run import Generation
from fastcar.toolkit.planner.frame_time import shares_for_time
from fastcar.toolkit.planner.plan import Request, plan_model
from fastcar.toolkit.planner.shapes import load_shape
from fastcar.toolkit.program.engine import DepthCapacity
from fastcar.toolkit.settings import AttentionSettings, ReplaySettings
from fastcar.toolkit.video.decode import FrameDecoder

PROMPT, FRAMES, HEADS = "a red car", 3, 4
GUIDANCE, PLACES, CODES = 3.0, 16, 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("vila-u") / "tiny"
    write_checkpoint(path, "tiny", shared=False)
    for part in ("llm", "vision_tower", "mm_projector"):
        strengthened(path / part)
    return path


@pytest.fixture(scope="module")
def bundle(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return export_model(folder, tmp_path_factory.mktemp("bundle") / "b", recipe="w8a8")


@pytest.fixture(scope="module")
def dense(bundle: Bundle) -> Generation:
    return generate(bundle, PROMPT, frames=FRAMES, seed=3, record_logits=True)


def test_logits_follow_the_float_model_through_prompt_padding_and_guidance(
    folder: Path, bundle: Bundle, dense: Generation
) -> None:
    codes = torch.from_numpy(dense.codes.reshape(-1, CODES).astype(np.int64))
    conditional, free = (float_logits(folder, prompt, bundle, codes) for prompt in (PROMPT, None))
    expected = (free + GUIDANCE * (conditional - free)).numpy()
    found = dense.logits.reshape(expected.shape)
    assert expected.std() > 1
    assert np.corrcoef(found.ravel(), expected.ravel())[0, 1] > 0.98
    wrong = (conditional + GUIDANCE * (free - conditional)).numpy()
    assert np.corrcoef(found.ravel(), wrong.ravel())[0, 1] < 0.9


@torch.no_grad()
def float_logits(folder: Path, prompt: str | None, bundle: Bundle, codes: torch.Tensor) -> torch.Tensor:
    """(n, D, codes) of ``codes`` (n, D) behind a prompt padded in front, masked and counted as in the release."""
    length = bundle.manifest.frame_layout.prompt_length
    ids = bundle.prompts.unconditional(length) if prompt is None else bundle.prompts.encode(prompt, length)
    pads = int((ids == PADDING).sum())
    model = LlamaForCausalLM.from_pretrained(folder / "llm", dtype=torch.float32)
    vision, projector = (load_file(folder / part / "model.safetensors") for part in ("vision_tower", "mm_projector"))
    text = model.model.embed_tokens(torch.from_numpy(np.where(ids == PADDING, 7, ids)))
    embedded = torch.cat([text, reference.backbone_input(vision, projector, codes, False)])[None]
    mask = torch.ones(embedded.shape[:2], dtype=torch.int64)
    mask[:, :pads] = 0
    positions = (mask.cumsum(-1) - 1).masked_fill(mask == 0, 1)
    hidden = model.model(inputs_embeds=embedded, attention_mask=mask, position_ids=positions).last_hidden_state[0]
    return reference.depth_logits(vision, hidden[length - 1 : -1], codes, HEADS, False)


def test_the_reference_computes_the_same_bits_with_replay(bundle: Bundle, dense: Generation) -> None:
    middle = float(np.nanmedian(dense.tas))
    settings = {"frames": FRAMES, "seed": 5, "record_logits": True, "replay": ReplaySettings((middle, middle))}
    runs = [generate(bundle, [PROMPT, "a dog"], backend=name, **settings) for name in ("onnxruntime", "reference")]
    assert 0.1 < runs[0].replay[1:].mean() < 0.9
    for name in ("codes", "tas", "replay", "logits"):
        np.testing.assert_array_equal(getattr(runs[0], name), getattr(runs[1], name))


def test_sinks_of_a_window_are_counted_behind_the_padding(bundle: Bundle) -> None:
    backend = open_backend("reference", bundle)
    layout = bundle.manifest.frame_layout
    length = layout.prompt_length
    tokens = np.stack([bundle.prompts.encode(PROMPT, length), bundle.prompts.unconditional(length)])
    backend.start(1, layout.positions, bundle.manifest.sampling, ReplaySettings(), AttentionSettings(window=6, sinks=2))
    backend.prefill(tokens)
    visible = backend.state.mask[:, :length] == 0
    for row, pads in zip(visible, (tokens == PADDING).sum(1), strict=True):
        assert np.flatnonzero(row).tolist() == [pads, pads + 1, *range(length - 6, length)]


def test_pictures_are_those_of_the_float_decoder(folder: Path, bundle: Bundle, dense: Generation) -> None:
    codes = dense.codes[0].reshape(FRAMES, 4, 4, CODES).astype(np.int64)
    vision = load_file(folder / "vision_tower/model.safetensors")
    expected = reference.pictures(vision, torch.from_numpy(codes), False, None).permute(0, 2, 3, 1).numpy()
    error = np.square(FrameDecoder(bundle)(codes) - expected).mean()
    assert 10 * np.log10(255**2 / error) > 30


def test_a_four_bit_export_that_stopped_goes_on_and_makes_the_same_bundle(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = export_model(folder, tmp_path / "whole", recipe="w4a8")
    depth, calls = LayerQuantizer.depth, []

    def stopped(self: LayerQuantizer, *given: Any) -> Any:
        calls.append(given)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return depth(self, *given)

    monkeypatch.setattr(LayerQuantizer, "depth", stopped)
    with pytest.raises(KeyboardInterrupt, match="2 of 2 layers are finished"):
        export_model(folder, tmp_path / "stopped", recipe="w4a8")
    monkeypatch.setattr(LayerQuantizer, "layer", None)  # none is quantized again
    resumed = export_model(folder, tmp_path / "stopped", recipe="w4a8")
    assert resumed.manifest.files == whole.manifest.files and GOLDEN_NODES in whole.manifest.files


@pytest.fixture(scope="module")
def engine_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An engine that holds the tiny model, to the file."""
    depth = DepthCapacity(layers=2, codes_per_position=4, code_dim=32)
    sizes = {"rows": 4, "max_layers": 2, "max_hidden": 64, "max_mlp": 256, "max_heads": 4, "max_kv_heads": 4}
    config = small_engine(**sizes, max_group=1, max_head_dim=16, max_slots=512, max_codes=32, depth=depth)
    path = tmp_path_factory.mktemp("engine") / "tiny.toml"
    path.write_text(engine_text(Engine(board="zcu104", config=config)))
    return path


@pytest.mark.parametrize("recipe", ["w8a8", "w4a8"])
def test_the_engine_computes_the_same_bits(folder: Path, engine_file: Path, tmp_path: Path, recipe: str) -> None:
    """Prompts of different lengths, guidance, replay, sinks and a window, codes read and made."""
    packed = export_model(folder, tmp_path / "b", recipe=recipe, board=str(engine_file))
    middle = float(np.nanmedian(generate(packed, PROMPT, frames=FRAMES, seed=3).tas))
    settings = {"frames": FRAMES, "seed": 5, "record_logits": True, "replay": ReplaySettings((middle, middle))}
    for attention in (None, AttentionSettings(window=20, sinks=3)):
        runs = [
            generate(packed, [PROMPT, "a dog"], backend=name, attention=attention, **settings)
            for name in ("reference", "csim")
        ]
        assert 0.1 < runs[0].replay[1:].mean() < 0.9
        for name in ("codes", "tas", "replay", "logits"):
            np.testing.assert_array_equal(getattr(runs[0], name), getattr(runs[1], name))


def test_an_engine_without_room_and_a_frame_layout_are_refused(folder: Path, engine_file: Path, tmp_path: Path) -> None:
    small = tmp_path / "small.toml"
    small.write_text(engine_file.read_text().replace("codes_per_position = 4", "codes_per_position = 3"))
    with pytest.raises(UsageError, match="codes_per_position 4 of the depth transformer; expected at most 3"):
        prepare_export(folder, tmp_path / "b", board=str(small))
    small.unlink()
    with pytest.raises(UsageError, match="frame-layout: given for a checkpoint that has its own"):
        prepare_export(folder, tmp_path / "b", frame_layout=tmp_path / "layout.json")
    assert not list(tmp_path.iterdir())


def test_a_context_that_is_too_short_is_refused(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "c", "tiny")
    path = tmp_path / "c/llm/config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"max_position_embeddings": 300}))
    result = run("export", str(tmp_path / "c"), "--out", str(tmp_path / "b"))
    assert result.code == 2 and "max_position_embeddings 300" in result.stderr and not (tmp_path / "b").exists()


WORDS = ("zebras", "a red car in the rain")


@pytest.fixture(scope="module")
def clips(bundle: Bundle, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two, of prompts of different length."""
    out = tmp_path_factory.mktemp("clips") / "own"
    prompts = [part for words in WORDS for part in ("--prompt", words)]
    result = run("generate", str(bundle.path), *prompts, "--frames", "2", "--seed", "1", "--out", str(out))
    assert result.code == 0, result.stderr
    return out


def test_calibrated_on_clips_of_its_own(folder: Path, bundle: Bundle, clips: Path, tmp_path: Path) -> None:
    """Tokens without padding, cut to the shortest clip, and the first layer's largest values in a plain reading."""
    random = prepare_export(folder, tmp_path / "out", recipe="w8a8")
    export = prepare_export(folder, tmp_path / "out", recipe="w8a8", calibrate_on=clips)
    tokens, codes = export.imported.calibration, load_file(clips / "run.safetensors")["codes"].long()
    texts = [bundle.prompts.tokens(words) for words in WORDS]
    length = len(texts[0]) + 2 * PLACES
    assert len(texts[1]) > len(texts[0]) and tokens.shape == (2, length, 1 + CODES)
    for clip, text, own in zip(tokens, texts, codes.flatten(1, 2), strict=True):
        assert clip[: len(text)].tolist() == [[token, *[-1] * CODES] for token in text]
        assert clip[len(text) :].tolist() == [[-1, *row] for row in own.tolist()][: length - len(text)]
    made = export.run(lambda stage, done, total: None)
    (told,) = made.manifest.record["quantization_notes"]
    assert told == "calibrated on 2 clips of 2 frames in own, generated by tiny in w8a8"
    assert "calibrated on random codes" in " ".join(bundle.manifest.record["quantization_notes"])
    expected = largest_values(folder, tokens)
    found, before = (model.model()[0].layers[0].v_scale * 127 for model in (made, bundle))
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    np.testing.assert_allclose(before, largest_values(folder, random.imported.calibration), rtol=1e-4)
    assert np.abs(before / found - 1).max() > 0.01
    blocks = [model.model()[0].depth.blocks[0] for model in (made, bundle)]
    assert np.abs(blocks[0].k_scale / blocks[1].k_scale - 1).max() > 0.01
    assert random.key != export.key


@torch.no_grad()
def largest_values(folder: Path, tokens: torch.Tensor) -> np.ndarray:
    """(heads,): |value| of the first layer over tokens (clips, positions, 1 + D)."""
    model = LlamaForCausalLM.from_pretrained(folder / "llm", dtype=torch.float32).model
    vision, projector = (load_file(folder / part / "model.safetensors") for part in ("vision_tower", "mm_projector"))
    peaks = []
    for clip in tokens:
        text = int((clip[:, 0] != -1).sum())
        parts = (
            model.embed_tokens(clip[:text, 0]),
            reference.backbone_input(vision, projector, clip[text:, 1:], False),
        )
        layer = model.layers[0]
        values = layer.self_attn.v_proj(layer.input_layernorm(torch.cat(parts)))
        peaks.append(values.reshape(len(clip), HEADS, -1).abs().amax((0, 2)))
    return torch.stack(peaks).amax(0).numpy()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            lambda codes: codes[..., 0],
            "frames of 4 x 4 codes, by tiny; expected frames of 4 x 4 positions of 4 residual",
        ),
        (
            lambda codes: codes[..., :3],
            "positions of 3 residual codes, by tiny; expected frames of 4 x 4 positions of 4",
        ),
        (lambda codes: codes + 32, "by tiny; expected 0 to 31, as tiny has"),
        (lambda codes: codes[:, :0], "the run was stopped before a frame was finished"),
        (None, "'<vi_start>' in it; expected words"),
    ],
)
def test_clips_of_others_are_refused_before_a_weight_is_read(
    folder: Path, clips: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Any, told: str
) -> None:
    monkeypatch.setattr("fastcar.export.shards.store.TensorStore.read", only_codes(TensorStore.read))
    copied = tmp_path / "own"
    shutil.copytree(clips, copied)
    if change:
        codes = change(load_file(copied / "run.safetensors")["codes"]).contiguous()
        save_file({"codes": codes}, copied / "run.safetensors")
    else:
        content = json.loads((copied / "result.json").read_text())
        (copied / "result.json").write_text(json.dumps(content | {"prompts": ["zebras", "a dog <vi_start>"]}))
    result = run("export", str(folder), "--calibrate-on", str(copied), "--out", str(tmp_path / "out"))
    assert result.code == 2 and told in result.error and str(copied) in result.error
    assert [path.name for path in tmp_path.iterdir()] == ["own"]


def only_codes(read: Any) -> Any:
    def checked(self: TensorStore, name: str) -> torch.Tensor:
        return read(self, name) if name == "codes" else pytest.fail("no weight may be read")

    return checked


def test_the_command_line_takes_any_words(bundle: Bundle, tmp_path: Path) -> None:
    out = tmp_path / "clip"
    result = run("generate", str(bundle.path), "--prompt", "zebras", "--frames", "2", "--out", str(out))
    assert result.code == 0 and (out / "video.mp4").exists()
    result = run("generate", str(bundle.path), "--prompt", "x" * 99, "--out", str(tmp_path / "no"))
    assert result.code == 2 and "tokens with its template; expected at most" in result.stderr


def test_the_planner_counts_a_checkpoint_as_its_bundle(folder: Path, bundle: Bundle) -> None:
    of_checkpoint, of_bundle = load_shape(folder), load_shape(bundle.path)
    for name in ("backbone", "depth", "guided"):
        assert getattr(of_checkpoint, name) == getattr(of_bundle, name)
    assert of_checkpoint.frame_layout == of_bundle.frame_layout


def test_planner_and_simulation_agree_on_a_run(folder: Path, engine_file: Path, tmp_path: Path) -> None:
    """Bytes a step of the run's own decisions, but for what a start reads once; and the time of a dense frame."""
    packed = export_model(folder, tmp_path / "b", recipe="w4a8", board=str(engine_file))
    middle = float(np.nanmedian(generate(packed, PROMPT, frames=FRAMES, seed=3).tas))
    simulation, replay = open_backend("csim", packed), ReplaySettings((middle, middle))
    run = generate(packed, PROMPT, frames=FRAMES, seed=3, replay=replay, backend=simulation)
    starts = [(start.control, start.replays) for start in simulation.starts if start.decodes]
    engine, board = packed.manifest.engine, load_board("zcu104")
    rate = board.sustained_beats_per_cycle(engine.clock_mhz)
    counted = count_modes(simulation.library, simulation.packed.program, starts, rate)
    saved = counted["dense"].bytes_per_step - counted["replay+drs"].bytes_per_step
    assert saved > 1000
    assert MovedBytes(packed).per_step(run) == counted["replay+drs"].bytes_per_step - 2 * 16 / PLACES

    planned = plan_model(Request(load_shape(packed.path), "zcu104", recipe="w4a8", engine=str(engine_file)))
    assert planned.modes["dense"].counts.frames[1] == pytest.approx(counted["dense"].cycles_per_step, rel=0.01)
    shares = shares_for_time(
        packed, 0.9 * PLACES * counted["replay+drs"].cycles_per_step / engine.clock_mhz / 1e6, 3, 2
    )
    assert shares[0] == 0 and all(0 < share <= 1 for share in shares[1:])
