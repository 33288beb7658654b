"""What a model needs of a checkpoint, compared with what it has; numbers that are none are found before any work."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import torch

from ...toolkit.errors import CheckpointError
from .store import TensorStore

__all__ = ["check_finite", "check_tensors", "read_finite"]


def check_tensors(
    store: TensorStore, expected: Mapping[str, tuple[int, ...]], fix: str, ignored: str | None = None
) -> None:
    """CheckpointError for the first tensor that is missing, of another shape, of no floating point, or not expected.

    ``ignored``: a pattern of names that may be there and are not needed.
    """
    for name, shape in expected.items():
        info = store.tensors.get(name)
        if info is None:
            raise CheckpointError(store.path, f"tensor {name} is missing", str(shape), fix)
        if info.shape != shape:
            raise CheckpointError(info.file, f"tensor {name} is {info.shape}", str(shape), fix)
        if not info.dtype.is_floating_point:
            raise CheckpointError(info.file, f"tensor {name} is {info.dtype}", "floating point", fix)
    for name, info in store.tensors.items():
        if name not in expected and not (ignored and re.fullmatch(ignored, name)):
            found = f"tensor {name} is not part of the model"
            raise CheckpointError(info.file, found, "the tensors that its config.json implies", fix)


def read_finite(store: TensorStore, name: str, fix: str) -> torch.Tensor:
    """The tensor in its own dtype. CheckpointError naming the first value that is no finite number."""
    tensor = store.read(name)
    check_finite(store.tensors[name].file, name, tensor, fix)
    return tensor


def check_finite(path: Path, name: str, tensor: torch.Tensor, fix: str) -> None:
    bad = (~torch.isfinite(tensor)).nonzero()
    if len(bad):
        index = bad[0].tolist()
        value = tensor[tuple(index)].item()
        raise CheckpointError(path, f"{name}{index} is {value}", "finite numbers only", fix)
