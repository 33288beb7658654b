"""A safetensors file written piece by piece, at places planned before the first of them, and where its tensors lie."""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import BundleError

__all__ = ["StoredTensor", "TensorSpec", "TensorWriter", "read_tensor", "stored_tensors", "write_tensors"]

DTYPES = {
    "BOOL": np.bool_,
    "U8": np.uint8,
    "I8": np.int8,
    "F16": np.float16,
    "U16": np.uint16,
    "I16": np.int16,
    "F32": np.float32,
    "I32": np.int32,
    "F64": np.float64,
    "I64": np.int64,
}
NAMES = {np.dtype(dtype): name for name, dtype in DTYPES.items()}
ITEM_BYTES = {name: np.dtype(dtype).itemsize for name, dtype in DTYPES.items()} | {"BF16": 2}  # NumPy has none


@dataclass(frozen=True)
class TensorSpec:
    """Type and shape of a tensor to come; types by safetensors' names."""

    dtype: str
    shape: tuple[int, ...]

    @classmethod
    def of(cls, array: np.ndarray) -> TensorSpec:
        return cls(NAMES[array.dtype], array.shape)

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * ITEM_BYTES[self.dtype]


@dataclass(frozen=True)
class StoredTensor:
    """Where a tensor lies in its file: bytes ``offset .. offset + length``."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    length: int


class TensorWriter:
    """Makes a file of its full size, so that a full disk is found now, and then fills in tensors in any order.

    A file that is there already, made for the same tensors, is gone on with. OSError if it cannot be written.
    """

    def __init__(self, path: Path, specs: Mapping[str, TensorSpec]) -> None:
        self.path = path
        header, self.bytes = _header(specs)
        if not _begins_with(path, header, self.bytes):
            with path.open("wb") as file:
                file.write(header)
                file.flush()
                os.posix_fallocate(file.fileno(), 0, self.bytes)
        self.stored = stored_tensors(path)

    def write(self, tensors: Mapping[str, np.ndarray]) -> None:
        """Into their places; ValueError for one that is not as planned. On disk when this returns."""
        with self.path.open("r+b") as file:
            for name, array in tensors.items():
                place = self.stored[name]
                if (NAMES[array.dtype], array.shape) != (place.dtype, place.shape):
                    raise ValueError(f"{name} is {array.dtype}{array.shape}; planned {place.dtype}{place.shape}")
                file.seek(place.offset)
                np.ascontiguousarray(array).tofile(file)
            file.flush()
            os.fsync(file.fileno())


def _header(specs: Mapping[str, TensorSpec]) -> tuple[bytes, int]:
    """The file's first bytes, and the size of all of it. Wide types come first: so each tensor is aligned."""
    entries, end = {}, 0
    for name in sorted(specs, key=lambda name: (-ITEM_BYTES[specs[name].dtype], name)):
        spec = specs[name]
        place = [end, end + spec.bytes]
        entries[name] = {"dtype": spec.dtype, "shape": list(spec.shape), "data_offsets": place}
        end += spec.bytes
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text, 8 + len(text) + end


def _begins_with(path: Path, header: bytes, size: int) -> bool:
    if not path.is_file() or path.stat().st_size != size:
        return False
    with path.open("rb") as file:
        return file.read(len(header)) == header


def write_tensors(path: Path, tensors: Mapping[str, np.ndarray]) -> None:
    """All at once."""
    path.unlink(missing_ok=True)
    TensorWriter(path, {name: TensorSpec.of(array) for name, array in tensors.items()}).write(tensors)


def read_tensor(path: Path, stored: StoredTensor) -> np.ndarray:
    """From the file, which is not mapped: what is mapped counts as memory of the process. KeyError for bfloat16."""
    values = np.fromfile(path, DTYPES[stored.dtype], math.prod(stored.shape), offset=stored.offset)
    return values.reshape(stored.shape)


def stored_tensors(path: Path) -> dict[str, StoredTensor]:
    """Names, types and byte ranges from a safetensors header, without reading the data.

    BundleError if the header does not describe the file: data past its end, bytes nobody names or two do, a tensor
    whose bytes are not those of its type and shape.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(8)
        length = struct.unpack("<Q", head)[0] if len(head) == 8 else size
        if length + 8 > size:
            raise BundleError(
                path, f"{size} bytes with a header of {length}", "a complete safetensors file", "Copy it again."
            )
        text = file.read(length)
    try:
        header = json.loads(text)
        header.pop("__metadata__", None)
        stored = {name: _stored(name, entry, 8 + length) for name, entry in header.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BundleError(path, f"a header that is none ({error})", "a safetensors file", "Copy it again.") from error
    end = 8 + length
    for tensor in sorted(stored.values(), key=lambda tensor: (tensor.offset, tensor.length)):
        if tensor.offset != end:
            raise BundleError(
                path, f"{tensor.name} at byte {tensor.offset}", f"byte {end}, where the last ends", "Copy it again."
            )
        end += tensor.length
    if end != size:
        raise BundleError(path, f"{size} bytes", f"{end} as its header says", "Copy it again.")
    return stored


def _stored(name: str, entry: dict[str, Any], start: int) -> StoredTensor:
    """ValueError if the byte range is not as long as type and shape say."""
    dtype, shape, (begin, end) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
    expected = math.prod(shape) * ITEM_BYTES[dtype]
    if end - begin != expected:
        raise ValueError(f"{name} has {end - begin} bytes; expected {expected} for {dtype} {list(shape)}")
    return StoredTensor(name, dtype, shape, start + begin, end - begin)
