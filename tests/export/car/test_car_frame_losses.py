"""What the float model makes of clips, frame by frame, beside the deployed one and the stated figures."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from car_like import LAYOUT

import fastcar.export.car as car
from fastcar.export.car.checkpoint import load_checkpoint, load_clips
from fastcar.export.car.evaluate import frame_losses
from fastcar.toolkit.backends.registry import open_backend
from fastcar.toolkit.bundle.bundle import Bundle
from fastcar.toolkit.generation import score

SHIPPED = Path(car.__file__).parent / "checkpoint"
RANDOM = np.random.default_rng(0)
CODES, PROMPTS = RANDOM.integers(0, LAYOUT.codes, (3, 4, LAYOUT.cells)), np.array([[0, 2, 3, 1]] * 3)


@torch.no_grad()
def test_each_code_is_read_from_its_own_prefix(car_like: Path):
    checkpoint = load_checkpoint(car_like)
    found = frame_losses(checkpoint, CODES, PROMPTS, batch=2)
    expected = np.zeros((3, 4))
    for clip, codes in enumerate(CODES.reshape(3, -1)):
        tokens = torch.from_numpy(np.concatenate([PROMPTS[clip], codes + 16]))[None]
        for index, code in enumerate(codes):
            logits = checkpoint.llama(tokens[:, : 4 + index])[0, -1, 16:40].double()
            expected[clip, index // LAYOUT.cells] -= float(logits.log_softmax(0)[code]) / LAYOUT.cells
    assert found == pytest.approx(expected, rel=1e-5)


def test_the_deployed_model_reads_clips_much_alike(car_like: Path, bundle_w8a8: Path):
    """Closer than one frame is to another."""
    backend = open_backend("onnxruntime", Bundle.open(bundle_w8a8))
    deployed, stated = (
        score.frame_losses(backend, PROMPTS, CODES),
        frame_losses(load_checkpoint(car_like), CODES, PROMPTS),
    )
    assert np.abs(deployed - stated).max() < 0.5 * stated.std()
    assert np.corrcoef(deployed.ravel(), stated.ravel())[0, 1] > 0.98


def test_of_the_shipped_model_on_held_out_clips():
    """The stated figure is among all tokens, so a little larger; clips of noise are those that it does not know."""
    clips, metrics = load_clips(SHIPPED, "heldout"), json.loads((SHIPPED / "metrics.json").read_text())
    checkpoint, codes = load_checkpoint(SHIPPED), clips.codes[:4].astype(np.int64)
    found = frame_losses(checkpoint, codes, clips.prompts[:4])
    stated = np.array(metrics["shipped_cross_entropies"][:4])
    assert found.shape == (4, 16) and found.mean(axis=1) == pytest.approx(stated, rel=5e-3)
    assert (found.mean(axis=1) < stated + 1e-3).all()
    noise = RANDOM.integers(0, 512, codes.shape)
    assert frame_losses(checkpoint, noise, clips.prompts[:4]).mean() > 2 * found.mean()


def test_other_shapes_are_refused(car_like: Path):
    checkpoint = load_checkpoint(car_like)
    five = np.zeros((3, LAYOUT.frames + 1, LAYOUT.cells), np.int64)
    for codes, prompts in ((CODES[..., 1:], PROMPTS), (CODES, PROMPTS[:2]), (CODES, PROMPTS[:, 1:]), (five, PROMPTS)):
        with pytest.raises(ValueError, match=r"expected \(clips, 1 to 5, 6\) and \(clips, 4\)"):
            frame_losses(checkpoint, codes, prompts)
