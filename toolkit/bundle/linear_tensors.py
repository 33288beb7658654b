"""Linear layers as named tensors: int8 weights as uint8 + 128, 4-bit ones packed, with scale, multiplier and bias."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..errors import BundleError
from ..numerics.weights import LinearWeights
from .tensor_file import StoredTensor, TensorSpec, read_tensor

__all__ = ["TensorReader", "linear_tensors", "pack_int4", "planned_linear", "unpack_int4"]

ZERO_POINT = 128
PAIRS = ((np.arange(256)[:, None] >> np.array([0, 4]) & 15 ^ 8) - 8).astype(np.int8).view(np.uint16)[:, 0]


def pack_int4(values: np.ndarray) -> np.ndarray:
    """int8 in -8..7, flattened row-major -> two to a byte, the first in the low half (ONNX's int4 layout)."""
    nibbles = (values.reshape(-1) & 15).astype(np.uint8)
    if nibbles.size % 2:
        nibbles = np.append(nibbles, np.uint8(0))
    return nibbles[0::2] | (nibbles[1::2] << 4)


def unpack_int4(packed: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """The inverse: int8 of ``shape``."""
    return PAIRS[packed.reshape(-1)].view(np.int8)[: shape[0] * shape[1]].reshape(shape)


def linear_tensors(name: str, linear: LinearWeights) -> dict[str, np.ndarray]:
    tensors = {f"{name}.scale": linear.scale} | ({} if linear.bias is None else {f"{name}.bias": linear.bias})
    if linear.multiplier is None:
        return tensors | {f"{name}.weight": linear.values.view(np.uint8) ^ np.uint8(ZERO_POINT)}
    return tensors | {f"{name}.weight": pack_int4(linear.values), f"{name}.multiplier": linear.multiplier}


def planned_linear(
    name: str, inputs: int, outputs: int, group_size: int | None, bias: bool = False
) -> dict[str, TensorSpec]:
    specs = {f"{name}.{part}": TensorSpec("F32", (outputs,)) for part in ("scale", *(["bias"] if bias else []))}
    if group_size is None:
        return specs | {f"{name}.weight": TensorSpec("U8", (inputs, outputs))}
    return specs | {
        f"{name}.weight": TensorSpec("U8", (-(-inputs * outputs // 2),)),
        f"{name}.multiplier": TensorSpec("U8", (inputs // group_size, outputs)),
    }


class TensorReader:
    """Reads tensors of a file by name; BundleError for one that is not there or not what it should be."""

    def __init__(self, path: Path, stored: dict[str, StoredTensor]) -> None:
        self.path, self.stored = path, stored

    def __call__(self, name: str) -> np.ndarray:
        if name not in self.stored:
            raise BundleError(self.path, f"no tensor {name}", "every tensor of the model", "Export again.")
        return read_tensor(self.path, self.stored[name])

    def linear(self, name: str, inputs: int) -> LinearWeights:
        weight, scale = self(f"{name}.weight"), self(f"{name}.scale")
        multiplier, bias = (
            self(f"{name}.{part}") if f"{name}.{part}" in self.stored else None for part in ("multiplier", "bias")
        )
        try:
            if multiplier is None:
                values = (weight ^ np.uint8(ZERO_POINT)).view(np.int8)
            else:
                values = unpack_int4(weight, (inputs, scale.size))
            return LinearWeights(values, scale, multiplier, bias)
        except ValueError as error:
            expected = "the weights of the model in the manifest"
            raise BundleError(self.path, f"{name}: {error}", expected, "Copy the bundle again.") from error
