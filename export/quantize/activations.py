"""Hidden states between two layers, on disk: a large model's layers are quantized one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch

__all__ = ["BATCH_POSITIONS", "Activations"]

BATCH_POSITIONS = 4096  # of clips that are in flight together


class Activations:
    """Hidden states (clips, positions, hidden) float32 in front of layer i, in a file ``NAME.i`` of ``folder``.

    Files are read and written, not mapped: what is mapped counts as memory of the process.
    """

    def __init__(self, folder: Path, name: str, shape: tuple[int, int, int]) -> None:
        self.folder, self.name = folder, name
        self.clips, self.positions, self.hidden = shape
        self.batch = max(1, BATCH_POSITIONS // self.positions)

    @property
    def bytes(self) -> int:
        """Of the states in front of one layer."""
        return 4 * self.clips * self.positions * self.hidden

    def begin(self, tokens: torch.Tensor, embed: Callable[[torch.Tensor], torch.Tensor]) -> None:
        """The states in front of layer 0: ``embed`` of tokens (clips, positions, ...)."""
        with self._path(0).open("wb") as file:
            for clips in tokens.split(self.batch):
                embed(clips).float().numpy().tofile(file)

    def batches(self, layer: int) -> Iterator[torch.Tensor]:
        """The states in front of ``layer``, (a few clips, positions, hidden) at a time."""
        with self._path(layer).open("rb") as file:
            for first in range(0, self.clips, self.batch):
                count = min(self.batch, self.clips - first)
                values = np.fromfile(file, np.float32, count * self.positions * self.hidden)
                yield torch.from_numpy(values).view(count, self.positions, self.hidden)

    def advance(self, layer: int, run: Callable[[torch.Tensor], torch.Tensor]) -> None:
        """Through ``layer``; the states in front of it stay, for who has to do this again."""
        with self._path(layer + 1).open("wb") as file:
            for x in self.batches(layer):
                run(x).numpy().tofile(file)

    def drop(self, layer: int) -> None:
        """Remove the states in front of ``layer``."""
        self._path(layer).unlink(missing_ok=True)

    def _path(self, layer: int) -> Path:
        return self.folder / f"{self.name}.{layer}"
