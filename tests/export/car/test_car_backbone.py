"""Training and judging the backbone: the optimizer, the copy baseline, sampling, and the model that is shipped."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from fastcar.export import car
from fastcar.export.car.baseline import fit_copy_baseline
from fastcar.export.car.checkpoint import ClipSet, load_checkpoint, load_clips, load_frames
from fastcar.export.car.dataset import Clips
from fastcar.export.car.evaluate import codebook_figures, cross_entropy, reconstruction_psnr
from fastcar.export.car.labels import PHRASES
from fastcar.export.car.muon import Muon, orthogonalize
from fastcar.export.car.prompt import car_prompts
from fastcar.export.car.sample import sample_codes
from fastcar.export.car.train_backbone import LAYOUT, ClipSource
from fastcar.export.car.train_tokenizer import psnr
from fastcar.export.llama import Llama
from fastcar.toolkit.config import BackboneConfig

CHECKPOINT = Path(car.__file__).parent / "checkpoint"


@pytest.mark.parametrize("shape", [(8, 8), (8, 24), (24, 8)])
def test_orthogonalized_matrix_keeps_directions_and_levels_singular_values(shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    matrix = torch.randn(shape)
    u, _, vh = torch.linalg.svd(matrix, full_matrices=False)
    values = torch.linalg.svdvals(orthogonalize(matrix))
    assert values.min() > 0.5 and values.max() < 1.3
    assert torch.einsum("ij,ij->", orthogonalize(matrix), u @ vh) / min(shape) == pytest.approx(1, abs=0.25)


def test_muon_solves_least_squares() -> None:
    torch.manual_seed(0)
    target, x = torch.randn(6, 4), torch.randn(64, 4)
    weight = torch.nn.Parameter(torch.zeros(6, 4))
    optimizer = Muon([weight], 0.05)
    for step in range(300):
        optimizer.param_groups[0]["lr"] = 0.05 * (1 - step / 300)
        loss = (x @ (weight - target).T).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert (weight - target).abs().max() < 0.05


def test_copy_baseline_is_a_distribution_and_prefers_what_it_has_seen() -> None:
    codes = np.array([[[0, 1], [0, 1], [2, 1]]], np.uint16)
    baseline = fit_copy_baseline(codes, 4, smoothing=(0.1, 0.1))
    assert np.allclose(np.exp(baseline.bigram).sum(1), 1) and np.allclose(np.exp(baseline.first).sum(1), 1)
    assert baseline.bigram[1].argmax() == 1 and baseline.first[0].argmax() == 0
    losses = baseline.losses(codes)
    assert losses.shape == codes.shape
    assert losses[0, 0, 0] == -baseline.first[0, 0] and losses[0, 2, 0] == -baseline.bigram[0, 2]


def test_codebook_figures() -> None:
    figures = codebook_figures(np.array([[0, 1], [2, 3]], np.uint16), 8)
    assert figures == {"dead_codes": 4, "perplexity": 4.0}


def test_clip_source_lays_out_prompt_and_codes() -> None:
    codes = np.arange(20 * 64, dtype=np.int64).reshape(20, 8, 8) % 512
    source = ClipSource(codes.astype(np.uint16), Clips(np.array([0, 3, 4]), np.array([1, 0, 0]), 16))
    tokens = source.tokens(np.array([1, 0]), np.array([True, False]))
    prompts = car_prompts()
    assert tokens.shape == (2, LAYOUT.positions)
    assert tokens[0, :4].tolist() == prompts.encode(PHRASES[0], 4).tolist()
    assert tokens[1, :4].tolist() == prompts.unconditional(4).tolist()
    assert np.array_equal(tokens[0, 4:] - LAYOUT.code_offset, codes[3:19].ravel())
    odds = source.balanced()
    assert odds.sum() == pytest.approx(1) and odds[0] / odds[1] == pytest.approx(2**0.5)


def test_sampling_equals_the_uncached_model() -> None:
    torch.manual_seed(0)
    model = Llama(BackboneConfig(hidden=16, layers=2, heads=4, kv_heads=2, head_dim=8, mlp=24, vocab=12), 16).eval()
    prompts, free = np.array([[1, 2, 3], [2, 2, 0]]), np.array([0, 0, 3])
    found = sample_codes(model, prompts, 8, 4, guidance=2.0, unconditional=free, top_k=1)
    rows, alone = torch.from_numpy(prompts), torch.from_numpy(np.tile(free, (2, 1)))
    for step in range(8):
        with torch.no_grad():
            guided, unguided = model(rows)[:, -1, 4:], model(alone)[:, -1, 4:]
        chosen = (unguided + 2 * (guided - unguided)).argmax(1)
        assert chosen.tolist() == found[:, step].tolist()
        rows, alone = (torch.cat([part, chosen[:, None] + 4], 1) for part in (rows, alone))


class TestShipped:
    """The weights in the project, against their model card."""

    def test_names_and_size(self) -> None:
        checkpoint = load_checkpoint(CHECKPOINT)
        with torch.device("meta"):
            wanted = Llama(checkpoint.config.backbone, checkpoint.config.frame_layout.positions).state_dict()
        assert list(checkpoint.llama.state_dict()) == list(wanted)
        assert "model.layers.5.self_attn.q_proj.weight" in wanted and "lm_head.weight" in wanted
        assert sum(path.stat().st_size for path in CHECKPOINT.iterdir()) <= 12e6
        assert checkpoint.config.prompt == car_prompts() and checkpoint.config.frame_layout == LAYOUT

    def test_clips_are_those_of_several_phrases(self) -> None:
        for name in ("calibration", "heldout"):
            clips = load_clips(CHECKPOINT, name)
            assert clips.codes.shape == (64, 16, 64) and clips.prompts.shape == (64, 4)
            assert len(np.unique(clips.prompts, axis=0)) >= 8

    def test_cross_entropy_is_what_the_card_says_and_beats_copying(self) -> None:
        metrics, card = json.loads((CHECKPOINT / "metrics.json").read_text()), (CHECKPOINT / "README.md").read_text()
        checkpoint, clips = load_checkpoint(CHECKPOINT), load_clips(CHECKPOINT, "heldout")
        stated = metrics["shipped_cross_entropies"]
        found = cross_entropy(checkpoint.llama, ClipSet(clips.codes[::8], clips.prompts[::8]), LAYOUT).mean((1, 2))
        assert found == pytest.approx(np.array(stated[::8]), rel=2e-3)
        assert len(stated) == len(clips.codes) and np.mean(stated) == pytest.approx(
            metrics["shipped_cross_entropy"], abs=1e-3
        )
        assert f"{metrics['shipped_cross_entropy']:.4f} nats/code" in card
        assert metrics["shipped_cross_entropy"] <= 0.75 * metrics["shipped_baseline_cross_entropy"]
        assert metrics["cross_entropy"] <= 0.75 * metrics["baseline_cross_entropy"]

    def test_copying_fitted_on_the_shipped_clips_is_beaten_too(self) -> None:
        checkpoint, heldout = load_checkpoint(CHECKPOINT), load_clips(CHECKPOINT, "heldout")
        baseline = fit_copy_baseline(load_clips(CHECKPOINT, "calibration").codes, LAYOUT.codes)
        few = ClipSet(heldout.codes[:8], heldout.prompts[:8])
        assert cross_entropy(checkpoint.llama, few, LAYOUT).mean() <= 0.75 * baseline.losses(few.codes).mean()

    def test_reconstruction(self) -> None:
        checkpoint, frames = load_checkpoint(CHECKPOINT), load_frames(CHECKPOINT)
        assert frames.shape == (8, 16, 64, 64, 3)
        assert reconstruction_psnr(checkpoint.tokenizer, frames.reshape(-1, 64, 64, 3)) >= 27

    def test_shipped_codes_decode_to_the_shipped_frames(self) -> None:
        checkpoint, frames = load_checkpoint(CHECKPOINT), load_frames(CHECKPOINT)
        codes = load_clips(CHECKPOINT, "heldout").codes[:8].reshape(-1, 8, 8).astype(np.int64)
        decoded = checkpoint.tokenizer.decode(torch.from_numpy(codes)).detach().numpy()
        assert psnr(decoded, frames.reshape(-1, 64, 64, 3)) >= 27
