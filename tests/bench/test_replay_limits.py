"""What replay costs car's predictions along real clips, by criterion: also by one that looks at what it would save."""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import pytest
import torch

from fastcar.export.car.checkpoint import load_checkpoint, load_clips
from fastcar.export.replayed import Decide, Seen, by_lot, by_score, by_similarity, replayed_logits

CLIPS, LAYERS = 8, 6
DEALT = [0.6, 1.0, 1.0, 1.0, 0.6, 0.6]  # of 0.8 in all: the least sensitive layers replay always


def uniform(model: torch.nn.Module, tokens: torch.Tensor, layout, share: float) -> Decide:
    """One threshold for all layers, the quantile of the dense scores."""
    scores = []
    replayed_logits(model, tokens, layout, lambda _, seen: scores.append(seen.scores[:, 1:].flatten()))
    threshold = torch.cat(scores).sort().values[int((1 - share) * sum(map(len, scores)))]
    return lambda _, seen: seen.scores > threshold


@torch.no_grad()
def test_cost_of_replay_along_held_out_clips(capsys: pytest.CaptureFixture[str]) -> None:
    folder = Path(str(files("fastcar.export").joinpath("car/checkpoint")))
    checkpoint = load_checkpoint(folder)
    model, layout = checkpoint.llama.float().eval(), checkpoint.config.frame_layout
    tokens = load_clips(folder, "heldout").tokens(layout)[:CLIPS]
    read, target = tokens[:, :-1], tokens[:, layout.prompt_length :]

    def cost(decide: Decide) -> tuple[float, float]:
        ratios = []

        def counted(layer: int, seen: Seen) -> torch.Tensor | None:
            replay = decide(layer, seen)
            ratios.append(0.0 if replay is None else replay[:, 1:].float().mean().item())
            return replay

        logits = replayed_logits(model, read, layout, counted)[:, layout.prompt_length - 1 :]
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten())
        return loss.item(), sum(ratios) / LAYERS

    dense, _ = cost(lambda *_: None)
    lines, found = [f"dense {dense:.3f} nats/code"], {}
    for name, shares in (
        ("0.2", [0.2] * LAYERS),
        ("0.5", [0.5] * LAYERS),
        ("0.8", [0.8] * LAYERS),
        ("0.8 dealt", DEALT),
    ):
        criteria: dict[str, Callable[[], Decide]] = {
            "lot": lambda shares=shares: by_lot(shares, torch.Generator().manual_seed(0)),
            "TAS": lambda shares=shares: by_score(shares),
            "similarity of inputs": lambda shares=shares: by_similarity(shares, "inputs"),
            "similarity of outputs": lambda shares=shares: by_similarity(shares, "outputs"),
        }
        if name[-1].isdigit():
            criteria["TAS, one threshold"] = lambda share=shares[0]: uniform(model, read, layout, share)
        for criterion, make in criteria.items():
            found[name, criterion], ratio = cost(make())
            change = 100 * (found[name, criterion] / dense - 1)
            lines.append(
                f"{name:<10} {criterion:<24} {found[name, criterion]:.3f} ({change:+.0f} %), ratio {ratio:.3f}"
            )
    with capsys.disabled():
        print("\n" + "\n".join(lines))
    for name in ("0.2", "0.5", "0.8"):  # what looks at the outputs knows more than what guesses
        assert dense < found[name, "similarity of outputs"] < found[name, "lot"]
