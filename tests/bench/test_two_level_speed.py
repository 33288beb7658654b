"""How long two-level scales take to fit, a weight: of 6.6 billion, 60 ns are 400 s."""

from __future__ import annotations

from time import perf_counter

import pytest
import torch
from plain_two_level import plain_fit_two_level

from fastcar.export.quantize.two_level_fit import fit_two_level

SHAPE = (4096, 344, 32)  # 4096 outputs, 11008 inputs
MOST_NS = 60.0


@pytest.mark.parametrize("uneven", [False, True])
def test_fit(uneven: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """With equal importance, as for nearest, and with an input's own, as for GPTQ; the plain search on a part."""
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(SHAPE, generator=generator)
    importance = torch.rand(SHAPE[1:], generator=generator) if uneven else torch.ones(SHAPE[1:])
    fast = min(_nanoseconds(fit_two_level, weights, importance) for _ in range(3))
    plain = _nanoseconds(plain_fit_two_level, weights[: SHAPE[0] // 4].contiguous(), importance)
    with capsys.disabled():
        kind = "own importance" if uneven else "equal importance"
        print(f"\ntwo-level scales, {kind}: {fast:.1f} ns/weight, by the plain search {plain:.0f}")
    assert fast <= MOST_NS


def _nanoseconds(fit, weights: torch.Tensor, importance: torch.Tensor) -> float:
    start = perf_counter()
    fit(weights, importance)
    return 1e9 * (perf_counter() - start) / weights.numel()
