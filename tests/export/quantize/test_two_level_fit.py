"""The search in blocks finds what the plain definition says, to the bit."""

from __future__ import annotations

import pytest
import torch
from plain_two_level import plain_fit_multiplier, plain_fit_two_level

from fastcar.export.quantize import two_level_fit
from fastcar.export.quantize.two_level_fit import fit_multiplier, fit_two_level

SHAPES = [(64, 88, 32), (37, 3, 32), (9, 10, 7), (1, 1, 4)]


def drawn(shape: tuple[int, int, int], uneven: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Weights with what has ties: zeros, whole numbers, equal magnitudes, a channel below the floor; importance."""
    generator = torch.Generator().manual_seed(sum(shape))
    weights = torch.randn(shape, generator=generator) * torch.randn(shape, generator=generator).mul_(0.7).exp_()
    for channel, changed in enumerate((0.0, weights[-1].round(), weights[-1].sign(), weights[-1] * 2.0**-30)):
        if channel + 1 < shape[0]:
            weights[channel] = changed
    if not uneven:
        return weights, torch.ones(shape[1:])
    importance = torch.rand(shape[1:], generator=generator).pow_(4)
    return weights, torch.where(importance < 1e-3, torch.zeros(()), importance)


@pytest.mark.parametrize("uneven", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_equals_the_plain_definition(shape, uneven):
    weights, importance = drawn(shape, uneven)
    found, expected = fit_two_level(weights, importance), plain_fit_two_level(weights, importance)
    assert all(torch.equal(*pair) for pair in zip(found, expected, strict=True))
    found, again = (fit(weights, importance, found[0]) for fit in (fit_multiplier, plain_fit_multiplier))
    assert all(torch.equal(*pair) for pair in zip(found, again, strict=True))


@pytest.mark.parametrize(("threads", "block"), [(1, 1 << 16), (2, 1 << 16), (2, 2816), (3, 1)])
def test_neither_blocks_nor_threads_change_it(monkeypatch, threads, block):
    weights, importance = drawn(SHAPES[0], uneven=True)
    expected = plain_fit_two_level(weights, importance)
    monkeypatch.setattr(two_level_fit, "BLOCK_WEIGHTS", block)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        found = fit_two_level(weights, importance)
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(*pair) for pair in zip(found, expected, strict=True))


def test_a_fault_in_a_thread_is_told(monkeypatch):
    weights, importance = drawn(SHAPES[0], uneven=False)
    monkeypatch.setattr(two_level_fit, "BLOCK_WEIGHTS", 1)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with pytest.raises(RuntimeError):
            fit_two_level(weights, importance[:, :-1] * 0.5)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
