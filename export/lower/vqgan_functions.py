"""The ``ai.fastcar`` functions that a VQGAN decoder calls; none holds a size, so one of each does for all maps."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from . import byte_conv
from .body import Library
from .group_norm import group_norm
from .map_attention import map_attention
from .silu import silu_bytes

__all__ = ["define", "outputs_of"]


class _Function(NamedTuple):
    emit: Callable[..., Any]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    doc: str


_WEIGHTS = ("weight", "weight_scale", "bias")
_FUNCTIONS = {
    "GroupNorm": _Function(
        group_norm, ("x", "gain", "bias", "eps"), ("y",), "GroupNorm with integer sums; gain and bias a row a group."
    ),
    "SiLUBytes": _Function(
        silu_bytes, ("x", "table"), ("values", "zero_point", "scale"), "SiLU in bytes, by a table made for the map."
    ),
    "WordBytes": _Function(
        byte_conv.word_bytes, ("x",), ("high", "low", "step"), "A map in 16 bits, as two maps of bytes."
    ),
    "MapAttention": _Function(
        map_attention,
        ("q", "k", "v", "steps_of_score", "table_high", "table_low"),
        ("y",),
        "Attention over the places of a map, exact in integers up to one division.",
    ),
}
_CONVS = {
    "ConvBytes": (byte_conv.conv_bytes, ("values", "zero_point", "scale"), "Integer convolution of a map of bytes."),
    "ConvWords": (byte_conv.conv_words, ("high", "low", "step"), "Integer convolution of a map of 16 bits."),
}


def define(library: Library, name: str, kernel: int | None = None) -> str:
    """The name under which ``library`` now has the function; ``kernel`` for ConvBytes and ConvWords."""
    full = name if kernel is None else f"{name}{kernel}x{kernel}"
    if full not in library.functions:
        function = _function(name, kernel)
        library.define(full, function.emit, function.inputs, function.outputs, function.doc)
    return full


def outputs_of(name: str) -> int:
    return len(_FUNCTIONS[name].outputs) if name in _FUNCTIONS else 1


def _function(name: str, kernel: int | None) -> _Function:
    if kernel is None:
        return _FUNCTIONS[name]
    emit, inputs, doc = _CONVS[name]
    return _Function(partial(emit, kernel=kernel), (*inputs, *_WEIGHTS), ("y",), doc)
