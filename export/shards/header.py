"""The header of a safetensors file, checked against the file's length before anything is read.

Format: 8 bytes of header length, little-endian; that many bytes of JSON, tensor name to dtype, shape and the two
offsets of its bytes behind the header; then the tensors without gaps.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

import torch

from ...toolkit.errors import CheckpointError

__all__ = ["COPY_AGAIN", "TensorInfo", "read_header"]

COPY_AGAIN = "Copy the file again, completely."
LARGEST_HEADER = 100_000_000  # bytes; the limit of the format's own library
DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8,
    "U16": torch.uint16, "U8": torch.uint8, "BOOL": torch.bool,
}  # fmt: skip


@dataclass(frozen=True)
class TensorInfo:
    """Where a tensor is, and what: ``file``, ``shape``, ``dtype``."""

    file: Path
    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def read_header(path: Path) -> dict[str, TensorInfo]:
    """Tensors by name. CheckpointError where header and file do not agree: cut short, too long, damaged."""
    expected = "a complete safetensors file"
    try:
        length = path.stat().st_size
        with path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            if length < 8 or size > min(length - 8, LARGEST_HEADER):
                found = f"is cut short, or no safetensors file: {length:,} bytes, a header of {size:,}"
                raise CheckpointError(path, found, expected, COPY_AGAIN)
            header = json.loads(file.read(size))
        words = header.pop("__metadata__", {}).values()
        if not all(isinstance(word, str) for word in words):
            raise ValueError("__metadata__ holds what is no text")
        places = {name: _place(path, name, entry) for name, entry in header.items()}
    except OSError as error:
        raise CheckpointError(path, f"cannot be read ({error.strerror or error})", expected, COPY_AGAIN) from error
    except (ValueError, RecursionError, AttributeError, KeyError, TypeError) as error:
        raise CheckpointError(path, f"its header is damaged ({error!r})", expected, COPY_AGAIN) from error
    _check_offsets(path, places, length - 8 - size)
    return {name: info for name, (info, _, _) in places.items()}


def _place(path: Path, name: str, entry: dict) -> tuple[TensorInfo, int, int]:
    if entry["dtype"] not in DTYPES:
        fix = "Convert it to float16, bfloat16 or float32."
        raise CheckpointError(path, f"tensor {name} is {entry['dtype']}", f"one of {', '.join(DTYPES)}", fix)
    shape, (begin, end) = tuple(entry["shape"]), entry["data_offsets"]
    if any(type(number) is not int or number < 0 for number in (*shape, begin, end)):
        raise ValueError(f"{name}: shape or offsets hold what is no size")
    return TensorInfo(path, shape, DTYPES[entry["dtype"]]), begin, end


def _check_offsets(path: Path, places: dict[str, tuple[TensorInfo, int, int]], length: int) -> None:
    """The tensors lie one behind the other, as long as their shapes say, up to the end of the file."""
    at = 0
    for name, (info, begin, end) in sorted(places.items(), key=lambda item: item[1][1:]):
        if begin != at or end - begin != info.bytes:
            found = f"tensor {name} lies at bytes {begin:,} to {end:,}"
            expected = f"{at:,} to {at + info.bytes:,}, by the tensors before it and its shape {info.shape}"
            raise CheckpointError(path, found, expected, COPY_AGAIN)
        at = end
    if at != length:
        found = f"{length:,} bytes of tensors" + (", cut short" if length < at else "")
        raise CheckpointError(path, found, f"{at:,} bytes, by its header", COPY_AGAIN)
