"""Which files a checkpoint has: one, or shards with an index, which is compared with them both ways."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from ...toolkit.errors import CheckpointError
from .header import COPY_AGAIN, TensorInfo

__all__ = ["KINDS", "check_index", "find_files", "read_index"]

KINDS = {".safetensors": "model", ".bin": "pytorch_model"}
"""Usual names of a single file by its suffix; safetensors come first where both are there."""

Opener = Callable[[Path], dict[str, TensorInfo]]


def find_files(folder: Path) -> tuple[list[Path], Path | None]:
    """Files, and the index that names them. CheckpointError if there is no checkpoint, or no telling which."""
    for suffix, name in KINDS.items():
        whole, index = folder / f"{name}{suffix}", folder / f"{name}{suffix}.index.json"
        if index.is_file() and whole.is_file():
            found = f"{whole.name} and {index.name}: weights in one file, and in shards"
            raise CheckpointError(folder, found, "one of the two", "Move away what is not the model's.")
        if index.is_file():
            return sorted({folder / file for file in read_index(index).values()}), index
        if whole.is_file():
            return [whole], None
    for suffix, name in KINDS.items():
        found = sorted(folder.glob(f"*{suffix}"))
        if len(found) == 1:
            return found, None
        if found:
            told = f"{len(found)} files ({found[0].name}, ...) and no {name}{suffix}.index.json"
            fix = "Copy the index too: it says which tensors belong to the model."
            raise CheckpointError(folder, told, "one file of weights, or shards with their index", fix)
    names = " or ".join(f"{name}{suffix}" for suffix, name in KINDS.items())
    kinds = {True: "no weights in it", False: "not the name of weights" if folder.is_file() else "no such folder"}
    found = kinds[folder.is_dir()]
    raise CheckpointError(folder, found, f"{names}, or shards with their index", "Is it the right folder?")


def read_index(path: Path) -> dict[str, str]:
    """File name by tensor. CheckpointError if the index is damaged, or names what is not beside it."""
    expected = "an index: weight_map, from tensor to file"
    try:
        names = json.loads(path.read_text("utf-8"))["weight_map"]
        if not names or not all(isinstance(word, str) for pair in names.items() for word in pair):
            raise ValueError("weight_map is empty, or holds what is no name")
    except OSError as error:
        raise CheckpointError(path, f"cannot be read ({error.strerror or error})", expected, COPY_AGAIN) from error
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(path, f"is damaged ({error!r})", expected, COPY_AGAIN) from error
    for tensor, file in names.items():
        if Path(file).name != file:
            raise CheckpointError(path, f"tensor {tensor} in {file!r}", "the name of a file beside it", COPY_AGAIN)
        if not _is_file(path.parent / file):
            missing = sorted({name for name in names.values() if not _is_file(path.parent / name)})
            found = f"names {', '.join(missing[:3])}{', ...' * (len(missing) > 3)}, which is not there"
            raise CheckpointError(path, found, f"{len(set(names.values()))} shards beside it", "Copy what is missing.")
    return names


def check_index(path: Path, shards: dict[Path, dict[str, TensorInfo]]) -> None:
    """Every tensor of the index is in the shard it names and in no other, and every tensor of a shard in the index."""
    names = read_index(path)
    places: dict[str, str] = {}
    for file, tensors in shards.items():
        for name in tensors:
            if name in places:
                found, fix = f"tensor {name} in {places[name]} and in {file.name}", "Copy all of the shards again."
                raise CheckpointError(path, found, "each tensor in one shard", fix)
            places[name] = file.name
    for name, file in names.items():
        if name not in shards[path.parent / file]:
            where = f"it is in {places[name]}" if name in places else "none of the shards has it"
            fix = "Index and shards are of different checkpoints: copy all of them again."
            raise CheckpointError(path, f"tensor {name} in {file}, but {where}", "an index of these shards", fix)
    for name, file in places.items():
        if name not in names:
            fix = "Index and shards are of different checkpoints: copy all of them again."
            raise CheckpointError(path, f"lacks tensor {name} of {file}", "an index of these shards", fix)


def _is_file(path: Path) -> bool:
    """False for a name that no file can have, too."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False
