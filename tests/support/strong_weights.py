"""Weights that make a difference: gains and biases of a synthetic checkpoint are nearly trivial."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

__all__ = ["strengthened"]

SPREAD = {1: 0.3, 2: 0.2, 3: 0.5, 4: 0.1}  # by the axes of a tensor


def strengthened(folder: Path) -> dict[str, torch.Tensor]:
    """Changes the tensors of a folder's only file, and returns them."""
    path = folder / "model.safetensors"
    generator = torch.Generator().manual_seed(3)
    stored = {
        name: value.float() + SPREAD[value.ndim] * torch.randn(value.shape, generator=generator)
        for name, value in load_file(path).items()
    }
    save_file(stored, path)
    return stored
