"""The tensors of a checkpoint folder, whose files were checked; each is read when it is asked for."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from ...toolkit.errors import CheckpointError
from .header import COPY_AGAIN, TensorInfo, read_header
from .index import KINDS, check_index, find_files

__all__ = ["TensorStore"]


class TensorStore:
    """``tensors``: by name, what and where; ``source``: the file that tells which there are. Opening reads headers
    only; files are mapped, not held.

    CheckpointError if a shard is missing, cut short or does not hold what the index says. Of PyTorch files only tensors
    are unpickled: what else a file holds is never executed.
    """

    def __init__(self, path: str | Path) -> None:
        """``path``: of the folder, or of a single file of weights."""
        self.path = Path(path)
        is_file = self.path.suffix in KINDS and not self.path.is_dir()
        files, index = ([self.path], None) if is_file else find_files(self.path)
        self.source = index or files[0]
        self._loaded: dict[Path, dict[str, torch.Tensor]] = {}
        shards = {file: read_header(file) if _is_safe(file) else self._torch_header(file) for file in files}
        if index is not None:
            check_index(index, shards)
        self.tensors: dict[str, TensorInfo] = {name: info for shard in shards.values() for name, info in shard.items()}

    def __contains__(self, name: str) -> bool:
        return name in self.tensors

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)

    @property
    def bytes(self) -> int:
        return sum(info.bytes for info in self.tensors.values())

    def read(self, name: str) -> torch.Tensor:
        """In its own dtype, the caller's to change. KeyError for a name that is not there, CheckpointError if the file
        cannot be read."""
        info = self.tensors[name]
        if not _is_safe(info.file):
            return self._loaded[info.file][name].detach().clone(memory_format=torch.contiguous_format)
        try:
            with safe_open(info.file, framework="pt") as file:
                return file.get_tensor(name)
        except (OSError, SafetensorError) as error:
            found = f"{name} cannot be read ({error})"
            raise CheckpointError(info.file, found, "a safetensors file", COPY_AGAIN) from error

    def _torch_header(self, path: Path) -> dict[str, TensorInfo]:
        expected = "a file of tensors, as torch.save writes it"
        try:
            content = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        except pickle.UnpicklingError as error:
            fix = "Convert it to safetensors where you trust it."
            found = f"holds more than tensors, or is damaged; it was not executed ({_reason(error)})"
            raise CheckpointError(path, found, expected, fix) from error
        except Exception as error:  # a damaged pickle may end in any: KeyError, IndexError, AttributeError, ...
            fix = f"{COPY_AGAIN} One of torch before 1.6 has to be loaded and saved anew."
            raise CheckpointError(path, f"cannot be read ({_reason(error)})", expected, fix) from error
        if not isinstance(content, dict) or not all(map(_is_named_tensor, content.items())):
            raise CheckpointError(path, "is no dictionary of tensors", expected, "Save the model's state_dict().")
        for name, value in content.items():
            if value.layout != torch.strided or value.is_meta:
                kind = "without values" if value.is_meta else f"of layout {value.layout}"
                fix = "Save it as an ordinary tensor."
                raise CheckpointError(path, f"tensor {name} is {kind}", "values one behind the other", fix)
        self._loaded[path] = content
        return {name: TensorInfo(path, tuple(value.shape), value.dtype) for name, value in content.items()}


def _is_safe(file: Path) -> bool:
    return file.suffix == ".safetensors"


def _is_named_tensor(item: tuple[object, object]) -> bool:
    return isinstance(item[0], str) and isinstance(item[1], torch.Tensor)


def _reason(error: Exception) -> str:
    """One line: where the unpickler says what it refused, that, and not its advice to let it through."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return next((line for line in lines if "nsupported" in line), lines[0]).split(". ")[0]
