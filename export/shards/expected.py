"""What a model needs of a checkpoint, compared with what it has; numbers that are none are found before any work."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import torch

from ...toolkit.errors import CheckpointError
from .store import TensorStore

__all__ = ["check_finite", "check_tensors", "read_finite"]

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
"""Eight bits are not among them: they go with scales, which are tensors of their own."""


def check_tensors(
    store: TensorStore, expected: Mapping[str, tuple[int, ...]], fix: str, ignored: str | None = None
) -> None:
    """CheckpointError for the first tensor that is missing, of another shape or dtype, or not expected.

    ``ignored``: a pattern of names that may be there and are not needed.
    """
    for name, shape in expected.items():
        info = store.tensors.get(name)
        if info is None:
            raise CheckpointError(store.source, f"tensor {name} is missing", str(shape), fix)
        if info.shape != shape:
            raise CheckpointError(info.file, f"tensor {name} is {info.shape}", str(shape), fix)
        if info.dtype not in FLOATS:
            expected_dtypes = f"floating point: {', '.join(map(str, FLOATS))}"
            raise CheckpointError(info.file, f"tensor {name} is {info.dtype}", expected_dtypes, fix)
    for name, info in store.tensors.items():
        if name not in expected and not (ignored and re.fullmatch(ignored, name)):
            found = f"tensor {name} is not part of the model"
            raise CheckpointError(info.file, found, "the tensors that its config.json implies", fix)


def read_finite(store: TensorStore, name: str, fix: str) -> torch.Tensor:
    """The tensor in its own dtype. CheckpointError naming the first value that is no finite number in float32."""
    tensor = store.read(name)
    check_finite(store.tensors[name].file, name, tensor, fix)
    return tensor


def check_finite(path: Path, name: str, tensor: torch.Tensor, fix: str) -> None:
    if tensor.dtype == torch.float64:  # goes further than what a model is computed in
        tensor = tensor.float()
    bad = (~torch.isfinite(tensor)).nonzero()
    if len(bad):
        index = bad[0].tolist()
        value = tensor[tuple(index)].item()
        raise CheckpointError(path, f"{name}{index} is {value}", "finite numbers only, in float32", fix)
