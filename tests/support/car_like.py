"""A checkpoint in the format of `car`, with random weights and small enough to export in a second or two."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from fastcar.export.car.checkpoint import CarCheckpoint, CarConfig, ClipSet, save_checkpoint
from fastcar.export.car.prompt import car_prompts
from fastcar.export.car.tokenizer import DecoderConfig, EncoderConfig, Tokenizer
from fastcar.export.llama import Llama
from fastcar.toolkit.bundle.bundle import MANIFEST
from fastcar.toolkit.bundle.manifest import file_entry
from fastcar.toolkit.config import BackboneConfig, FrameLayout

LAYOUT = FrameLayout(prompt_length=4, frames=5, grid=(3, 2), code_offset=16, codes=24)
BACKBONE = BackboneConfig(hidden=32, layers=2, heads=4, kv_heads=2, head_dim=16, mlp=64, vocab=40)
PIXELS = 8  # of a picture's side for each code

CONFIG = CarConfig(
    name="car-like",
    backbone=BACKBONE,
    frame_layout=LAYOUT,
    prompt=car_prompts(),
    encoder=EncoderConfig(patch=4, channels=(8, 8), blocks=(1, 1)),
    decoder=DecoderConfig.pyramid(embedding=6, channels=(12, 8, 8, 4), blocks=(1, 1, 0, 0)),
    frame_rate=8.0,
)


def random_llama(config: BackboneConfig = BACKBONE, seed: int = 0) -> Llama:
    """Weights large enough that codes, scores and logits vary from step to step."""
    torch.manual_seed(seed)
    llama = Llama(config, LAYOUT.positions).eval()
    for parameter in llama.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, 0, 0.25)
    return llama


def random_tokenizer(seed: int = 0) -> Tokenizer:
    """With residual branches that do something, and colours that spread over the range."""
    torch.manual_seed(seed)
    tokenizer = Tokenizer(CONFIG.encoder, CONFIG.decoder, LAYOUT.codes).eval()
    for name, parameter in tokenizer.decoder.named_parameters():
        if name.endswith("second.weight"):
            torch.nn.init.normal_(parameter, 0, 0.1)
    torch.nn.init.normal_(tokenizer.decoder.stages[-1].weight, 0, 0.8)
    return tokenizer


def random_clips(count: int, seed: int) -> ClipSet:
    """A code stays from frame to frame, or changes with odds 7 : 3."""
    rng = np.random.default_rng(seed)
    first = rng.integers(0, LAYOUT.codes, (count, 1, LAYOUT.tokens_per_frame))
    codes = np.repeat(first, LAYOUT.frames, axis=1)
    changed = rng.random(codes.shape) < 0.3
    codes[changed] = rng.integers(0, LAYOUT.codes, changed.sum())
    prompts = car_prompts()
    tokens = [prompts.encode(prompts.phrases[i % len(prompts.phrases)], LAYOUT.prompt_length) for i in range(count)]
    return ClipSet(codes.astype(np.uint16), np.stack(tokens))


def write_checkpoint(folder: Path, llama: Llama | None = None) -> Path:
    checkpoint = CarCheckpoint(CONFIG, llama or random_llama(), random_tokenizer())
    clips = {"calibration": random_clips(6, seed=1), "heldout": random_clips(4, seed=2)}
    save_checkpoint(folder, checkpoint, clips)
    return folder


def damaged_checkpoint(
    source: Path, folder: Path, file: str, tensor: str, index: tuple[int, ...], value: float
) -> Path:
    """A copy of the checkpoint ``source`` with ``value`` at ``index`` of one tensor; a short index fills a row."""
    shutil.copytree(source, folder)
    tensors = load_file(folder / file)
    tensors[tensor][index] = value
    save_file(tensors, folder / file)
    return folder


def copy_of(bundle: Path, folder: Path) -> Path:
    """A bundle of the test's own, to damage."""
    shutil.copytree(bundle, folder)
    return folder


def edit_manifest(folder: Path, **changes: object) -> None:
    path = folder / MANIFEST
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def rehash(folder: Path, name: str) -> None:
    """Make the manifest agree with a changed file, as one who forges a bundle would."""
    files = json.loads((folder / MANIFEST).read_text())["files"]
    files[name] = file_entry(folder / name).model_dump()
    edit_manifest(folder, files=files)
