"""Replay over whole clips at once against the float decoder that goes position by position."""

from __future__ import annotations

import numpy as np
import pytest
import random_models
import torch
from float_decoder import FloatDecoder, float_llama

from fastcar.export.replayed import Seen, by_lot, by_score, by_similarity, replayed_logits

LAYOUT = random_models.layout(frames=5, grid=(3, 2))
MODEL = random_models.random_model(8, shape=random_models.config(heads=4, kv_heads=2), frames=LAYOUT)
ROWS, LAYERS, PLACES = 2, MODEL.config.layers, LAYOUT.tokens_per_frame
POSITIONS = LAYOUT.positions - 1  # the last one is not read: the last frame is incomplete


@pytest.fixture(scope="module")
def tokens() -> np.ndarray:
    return np.random.default_rng(3).integers(0, MODEL.config.vocab, (ROWS, POSITIONS))


@pytest.fixture(scope="module")
def llama() -> torch.nn.Module:
    return float_llama(MODEL).double()


def recorded(into: dict[int, Seen], decisions: np.ndarray | None = None):
    """A criterion that keeps what it sees and decides as it is told."""

    def decide(layer: int, seen: Seen) -> torch.Tensor | None:
        into[layer] = seen
        return None if decisions is None else torch.from_numpy(decisions[layer])

    return decide


def test_decisions_have_the_effect_they_have_step_by_step(llama: torch.nn.Module, tokens: np.ndarray):
    decisions = np.random.default_rng(4).random((LAYERS, ROWS, LAYOUT.frames, PLACES)) < 0.6
    decisions[:, :, 0] = False
    seen: dict[int, Seen] = {}
    with torch.no_grad():
        found = replayed_logits(llama, torch.from_numpy(tokens), LAYOUT, recorded(seen, decisions)).numpy()
    decoder, flat = FloatDecoder(MODEL, ROWS), decisions.reshape(LAYERS, ROWS, -1)
    codes = slice(LAYOUT.code_offset, LAYOUT.code_offset + LAYOUT.codes)
    for position in range(POSITIONS):
        place = position - LAYOUT.prompt_length
        logits, tas = decoder.step(tokens[:, position], flat[:, :, place] if place >= 0 else None)
        np.testing.assert_allclose(found[:, position, codes], logits, rtol=1e-4, atol=1e-4)
        if place >= PLACES:
            scores = [seen[layer].scores.flatten(1)[:, place].numpy() for layer in range(LAYERS)]
            np.testing.assert_allclose(scores, tas, rtol=1e-4, atol=1e-4)


def test_without_decisions_it_is_the_model(llama: torch.nn.Module, tokens: np.ndarray):
    with torch.no_grad():
        one = replayed_logits(llama, torch.from_numpy(tokens), LAYOUT, recorded({}))
        torch.testing.assert_close(one, llama(torch.from_numpy(tokens)))


@pytest.mark.parametrize("share", [0.0, 0.3, 0.8, 1.0])
def test_criteria_replay_the_share_they_are_given(llama: torch.nn.Module, tokens: np.ndarray, share: float):
    shares = [share] * LAYERS
    criteria = {
        "TAS": by_score(shares),
        "lot": by_lot(shares, torch.Generator().manual_seed(1)),
        "inputs": by_similarity(shares, "inputs"),
        "outputs": by_similarity(shares, "outputs"),
    }
    for name, criterion in criteria.items():
        ratios = []

        def counted(layer: int, seen: Seen, criterion=criterion, ratios=ratios) -> torch.Tensor:
            replay = criterion(layer, seen)
            ratios.append(replay[:, 1:].float().mean().item())
            return replay

        with torch.no_grad():
            replayed_logits(llama, torch.from_numpy(tokens), LAYOUT, counted)
        assert np.mean(ratios) == pytest.approx(share, abs=0.15 if name == "lot" else 0.1), name


def test_what_is_like_what_was_computed_replays_first():
    inputs = torch.zeros(1, 3, 2, 4)
    inputs[0, :, 0] = torch.tensor([1.0, 0, 0, 0])  # stays as it is
    inputs[0, :, 1] = torch.eye(4)[:3]  # changes
    seen = Seen(torch.zeros(1, 3, 2), inputs, inputs)
    replay = by_similarity([0.5], "inputs")(0, seen)
    assert replay[0].tolist() == [[False, False], [True, False], [True, False]]
