"""The training run of `car`: record -> tokenizer -> encode -> backbone -> evaluate -> checkpoint and model card.

python -m fastcar.export.car.train --out export/car/checkpoint --work /tmp/car
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from ..llama import Llama
from .baseline import fit_copy_baseline
from .card import model_card
from .checkpoint import CarCheckpoint, CarConfig, ClipSet, load_checkpoint, save_checkpoint
from .dataset import find_clips, mirror_odd, record_split, splits
from .evaluate import codebook_figures, encode_frames, evaluate
from .journal import Journal, progress
from .prompt import car_prompts
from .simulator import FRAME_RATE, Episode
from .tokenizer import Tokenizer
from .train_backbone import BACKBONE, LAYOUT, BackboneRecipe, ClipSource, train_backbone
from .train_tokenizer import DECODER, ENCODER, TokenizerRecipe, new_tokenizer, train_tokenizer

__all__ = ["main", "train_car"]

_TRAIN_STRIDE, _HELD_OUT_STRIDE = 1, 16
_EVALUATED, _SHIPPED, _PICTURED = 256, 64, 8  # held-out clips: scored, kept in the checkpoint, kept as frames too
_ENCODE_BATCH = 128
_TOKENIZER_RECIPE, _BACKBONE_RECIPE = TokenizerRecipe(), BackboneRecipe()


@dataclass(frozen=True)
class _Run:
    """What the stages share: where they work, from which seed, and what they have cost."""

    work: Path
    seed: int
    journal: Journal


def train_car(
    out: Path | str,
    work: Path | str,
    seed: int = 1,
    tokenizer_recipe: TokenizerRecipe = _TOKENIZER_RECIPE,
    backbone_recipe: BackboneRecipe = _BACKBONE_RECIPE,
) -> Path:
    """Train `car` from nothing and write its checkpoint to ``out``; progress on stderr.

    Every finished stage stays in ``work``: an interrupted run continues after the last one. Another seed or recipe
    needs another folder. Needs gymnasium[box2d] (ImportError). OutputError if ``out`` cannot be written.
    """
    work = Path(work)
    work.mkdir(parents=True, exist_ok=True)
    run = _Run(work, seed, Journal(work))
    train, held_out = (mirror_odd(episodes) for episodes in _recordings(run))
    tokenizer = _trained_tokenizer(run, train, tokenizer_recipe)
    codes, held_out_codes = _encoded(run, tokenizer, train, held_out)
    source = ClipSource(codes, find_clips(train, LAYOUT.frames, _TRAIN_STRIDE))
    llama = _trained_backbone(run, source, backbone_recipe)
    held_out_source = ClipSource(held_out_codes, find_clips(held_out, LAYOUT.frames, _HELD_OUT_STRIDE))
    checkpoint = CarCheckpoint(_config(), llama, tokenizer)
    chosen = _choose(held_out_source, _EVALUATED, seed)
    clips = {
        "calibration": _clip_set(source, _choose(source, _SHIPPED, seed)),
        "heldout": _clip_set(held_out_source, chosen[:_SHIPPED]),
    }
    pictures = _frames(held_out, held_out_source, chosen[:_PICTURED])
    save_checkpoint(Path(out), checkpoint, clips, pictures)
    seen = _choose(source, backbone_recipe.clips, seed + 1, replace=True)
    baseline = fit_copy_baseline(source.clip_codes(seen), LAYOUT.codes)
    with run.journal.stage("evaluate") as figures:
        shipped = load_checkpoint(out)  # the float16 weights are what is scored
        figures |= evaluate(shipped, _clip_set(held_out_source, chosen), _every(held_out, 4), baseline, _SHIPPED)
    recipes = {"tokenizer_recipe": tokenizer_recipe, "backbone_recipe": backbone_recipe}
    metrics = _metrics(run, checkpoint, (source, held_out_source), recipes)
    save_checkpoint(Path(out), checkpoint, clips, pictures, metrics, model_card(metrics))
    return Path(out)


def _config() -> CarConfig:
    return CarConfig(
        name="car",
        backbone=BACKBONE,
        frame_layout=LAYOUT,
        prompt=car_prompts(),
        encoder=ENCODER,
        decoder=DECODER,
        frame_rate=FRAME_RATE,
    )


def _recordings(run: _Run) -> list[list[Episode]]:
    parts = splits(run.seed)
    with (
        run.journal.stage("record") as figures,
        progress("recording episodes", sum(len(split.seeds) for split in parts)) as advance,
    ):
        found = [record_split(split, run.work / "episodes", os.cpu_count() or 1, advance) for split in parts]
        for split, episodes in zip(parts, found, strict=True):
            figures[f"{split.name}_episodes"] = len(episodes)
            figures[f"{split.name}_frames"] = sum(len(episode.frames) for episode in episodes)
            figures[f"{split.name}_seeds"] = f"{split.seeds[0]}..{split.seeds[-1]}"
    return found


def _trained_tokenizer(run: _Run, train: list[Episode], recipe: TokenizerRecipe) -> Tokenizer:
    path = run.work / "tokenizer.safetensors"
    if not path.exists():
        recent: list[float] = []
        with run.journal.stage("tokenizer"), progress("training the tokenizer", recipe.steps) as advance:

            def report(step: int, psnr: float) -> None:
                recent.append(psnr)
                advance(f"{np.mean(recent[-50:]):.2f} dB")

            trained = train_tokenizer(_every(train, 1), recipe, run.seed, report)
        save_file({name: tensor.contiguous() for name, tensor in trained.state_dict().items()}, path)
    tokenizer = new_tokenizer().eval()
    tokenizer.load_state_dict(load_file(path))
    return tokenizer


def _encoded(run: _Run, tokenizer: Tokenizer, train: list[Episode], held_out: list[Episode]) -> tuple[np.ndarray, ...]:
    """Codes (frames, 8, 8) uint16 of the training and of the held-out episodes, end to end."""
    path = run.work / "codes.npz"
    if not path.exists():
        frames = {"train": _every(train, 1), "held_out": _every(held_out, 1)}
        batches = sum(-(-len(part) // _ENCODE_BATCH) for part in frames.values())
        with run.journal.stage("encode") as figures, progress("encoding the frames", batches) as advance:
            codes = {name: encode_frames(tokenizer, part, advance, _ENCODE_BATCH) for name, part in frames.items()}
            figures |= codebook_figures(codes["train"], LAYOUT.codes)
        np.savez(path, **codes)
    with np.load(path) as stored:
        return stored["train"], stored["held_out"]


def _trained_backbone(run: _Run, source: ClipSource, recipe: BackboneRecipe) -> Llama:
    path = run.work / "backbone.safetensors"
    if not path.exists():
        recent: list[float] = []
        with run.journal.stage("backbone"), progress("training the backbone", recipe.steps) as advance:

            def report(step: int, loss: float, mean: Llama) -> None:
                recent.append(loss)
                advance(f"{np.mean(recent[-20:]):.3f} nats/code")
                if step % 100 == 99:  # something to look at while the rest is trained
                    save_file(mean.state_dict(), run.work / "backbone.partial.safetensors")

            trained = train_backbone(source, recipe, run.seed, report)
        save_file(trained.state_dict(), path)
    llama = Llama(BACKBONE, LAYOUT.positions).eval()
    llama.load_state_dict(load_file(path))
    return llama


def _choose(source: ClipSource, number: int, seed: int, replace: bool = False) -> np.ndarray:
    probability = source.balanced()
    number = number if replace else min(number, len(probability))
    return np.random.default_rng(seed).choice(len(probability), number, replace, probability)


def _clip_set(source: ClipSource, chosen: np.ndarray) -> ClipSet:
    return ClipSet(source.clip_codes(chosen), source.tokens(chosen)[:, : LAYOUT.prompt_length].numpy())


def _every(episodes: Iterable[Episode], stride: int) -> np.ndarray:
    """Every ``stride``-th frame of the episodes, end to end."""
    return np.concatenate([episode.frames[::stride] for episode in episodes])


def _frames(episodes: list[Episode], source: ClipSource, chosen: np.ndarray) -> np.ndarray:
    """Frames (clips, frames, 64, 64, 3) uint8 of the chosen clips, as they were before the tokenizer."""
    return _every(episodes, 1)[source.clips.start[chosen][:, None] + np.arange(LAYOUT.frames)]


def _metrics(
    run: _Run, checkpoint: CarCheckpoint, sources: tuple[ClipSource, ClipSource], recipes: dict[str, Any]
) -> dict[str, Any]:
    stages = run.journal.stages
    train, held_out = (source.clips.counts() for source in sources)
    tokenizer = checkpoint.tokenizer
    return {
        **{name: figure for stage in stages.values() for name, figure in stage.items() if not name.endswith("minutes")},
        "labels": {phrase: [train[phrase], held_out[phrase]] for phrase in train},
        "stages": {name: [stage["wall_minutes"], stage["cpu_minutes"]] for name, stage in stages.items()},
        "command": f"fastcar train car --seed {run.seed}",
        "date": datetime.date.today().isoformat(),
        "frame_rate": FRAME_RATE,
        "positions": LAYOUT.positions,
        "codes": LAYOUT.codes,
        "embedding": DECODER.embedding,
        "phrases": ", ".join(f"`{phrase}`" for phrase in checkpoint.config.prompt.phrases),
        "backbone_parameters": sum(p.numel() for p in checkpoint.llama.parameters()),
        "encoder_parameters": sum(p.numel() for p in tokenizer.encoder.parameters()),
        "decoder_parameters": sum(p.numel() for p in tokenizer.decoder.parameters()),
        "train_stride": _TRAIN_STRIDE,
        "held_out_stride": _HELD_OUT_STRIDE,
        **{name: _describe(recipe) for name, recipe in recipes.items()},
    }


def _describe(recipe: Any) -> str:
    described = (type(recipe).__doc__ or "").split(".")[0].split("\n")[0]
    values = ", ".join(f"{name} {value:g}" for name, value in dataclasses.asdict(recipe).items())
    return f"{described}; {values}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Train the model `car` from nothing; about an hour on two idle cores.")
    parser.add_argument("--out", type=Path, required=True, help="checkpoint folder to write")
    parser.add_argument("--work", type=Path, required=True, help="folder for episodes and finished stages (1 GB)")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(os.cpu_count() or 1)
    train_car(options.out, options.work, options.seed)


if __name__ == "__main__":
    main()
