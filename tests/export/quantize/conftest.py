"""A decoder small enough to train in seconds, on clips whose codes depend on the frame before."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from fastcar.export.llama import Llama
from fastcar.toolkit.config import BackboneConfig, FrameLayout

CONFIG = BackboneConfig(hidden=64, layers=2, heads=4, kv_heads=2, head_dim=16, mlp=96, vocab=40)
LAYOUT = FrameLayout(prompt_length=2, frames=4, grid=(2, 4), code_offset=8, codes=32)


def markov_clips(count: int, seed: int) -> torch.Tensor:
    """A code stays, or moves by a fixed permutation, or copies its left neighbour's, with odds 6 : 3 : 1."""
    generator = torch.Generator().manual_seed(seed)
    moved = torch.randperm(LAYOUT.codes, generator=torch.Generator().manual_seed(0))
    prompt = torch.randint(0, LAYOUT.code_offset, (count, LAYOUT.prompt_length), generator=generator)
    frame = torch.randint(0, LAYOUT.codes, (count, LAYOUT.tokens_per_frame), generator=generator)
    frames = [frame]
    for _ in range(LAYOUT.frames - 1):
        chance = torch.rand(frame.shape, generator=generator)
        frame = torch.where(chance < 0.6, frame, torch.where(chance < 0.9, moved[frame], frame.roll(1, 1)))
        frames.append(frame)
    return torch.cat([prompt, *(frame + LAYOUT.code_offset for frame in frames)], dim=1)


def random_llama(config: BackboneConfig = CONFIG, positions: int = LAYOUT.positions, seed: int = 0) -> Llama:
    torch.manual_seed(seed)
    llama = Llama(config, positions)
    for parameter in llama.parameters():
        if parameter.dim() == 2:
            torch.nn.init.normal_(parameter, 0, 0.08)
    return llama.eval()


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def layout() -> FrameLayout:
    return LAYOUT


@pytest.fixture(scope="session")
def calibration() -> torch.Tensor:
    return markov_clips(48, seed=1)


@pytest.fixture(scope="session")
def heldout() -> torch.Tensor:
    return markov_clips(96, seed=2)


@pytest.fixture(scope="session")
def trained() -> Llama:
    """Trained until attention to the frame before has formed; not to be modified."""
    llama = random_llama()
    steps = 250
    optimizer = torch.optim.AdamW(llama.parameters(), 1e-2, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=steps)
    for step in range(steps):
        clips = markov_clips(24, seed=100 + step)
        start = LAYOUT.prompt_length + LAYOUT.tokens_per_frame
        logits = llama(clips[:, :-1])[:, start - 1 :]
        optimizer.zero_grad()
        F.cross_entropy(logits.flatten(0, 1), clips[:, start:].flatten()).backward()
        optimizer.step()
        schedule.step()
    return llama.requires_grad_(False)


@pytest.fixture
def biased() -> Llama:
    """Random weights, and biases in every layer that may have one."""
    llama = random_llama(CONFIG.model_copy(update={"attention_bias": True, "mlp_bias": True}))
    for name, parameter in llama.named_parameters():
        if name.endswith(".bias"):
            torch.nn.init.normal_(parameter, 0, 0.5)
    return llama.requires_grad_(False)


@pytest.fixture
def untrained() -> Llama:
    """Random weights, the test's own to damage."""
    return random_llama().requires_grad_(False)
