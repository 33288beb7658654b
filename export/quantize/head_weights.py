"""Heads weighted in TAS: sum_h w[h] * TAS[h] / sum_h |w[h]| in place of their mean, by other integer multipliers."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ...toolkit.config import BackboneConfig
from ...toolkit.errors import UsageError
from ...toolkit.numerics.weights import LayerWeights
from .head_scales import MULTIPLIER_MAX

__all__ = ["HeadWeights", "lost_heads", "read_head_weights", "weigh_heads"]

HeadWeights = tuple[tuple[float, ...], ...]
"""A weight of either sign for each head of each layer; a layer's are only compared with each other."""

OPTION = "--tas-head-weights"


def read_head_weights(path: Path, config: BackboneConfig) -> HeadWeights:
    """Of a JSON file, a list of ``heads`` numbers for each layer.

    UsageError for a file that is none, for other counts, for what is no finite number, and for a layer of zeros.
    """
    layers = _read(path)
    expected = f"{config.layers} lists, one a layer, of {config.heads} numbers, one a head"
    if not isinstance(layers, list) or not all(isinstance(heads, list) for heads in layers):
        raise UsageError(OPTION, f"{path} holds other things than lists", expected, "Write [[1, 0.5, ...], ...].")
    if len(layers) != config.layers:
        found = f"{len(layers)} lists in {path}"
        raise UsageError(OPTION, found, expected, "Write as many as the model (or --layers) has layers.")
    return tuple(_of_layer(index, heads, config.heads, path) for index, heads in enumerate(layers))


def weigh_heads(layer: LayerWeights, weights: Sequence[float]) -> LayerWeights:
    """The layer with multipliers m[h] * w[h], scaled so that the largest is 127 and rounded, half to even.

    Its ``tas_scale`` makes up for both, so that score * ``tas_unit`` is sum_h w[h] * TAS[h] / sum_h |w[h]| as closely
    as 127 steps allow: each m[h] * w[h] is off by at most 1/254 of the largest one, and a head below that is lost.
    Equal weights leave a layer as calibration makes it. No bound of a score changes; what quantizes q and k stays.
    """
    w = np.array(weights, np.float64)
    w = w / np.abs(w).max()
    wanted = layer.tas_multiplier * w
    largest = np.abs(wanted).max()
    multiplier = np.rint(wanted * MULTIPLIER_MAX / largest).astype(np.int32)
    growth = float(largest * w.size / (MULTIPLIER_MAX * math.fsum(np.abs(w))))
    return replace(layer, tas_multiplier=multiplier, tas_scale=layer.tas_scale * growth)


def lost_heads(index: int, layer: LayerWeights, weights: Sequence[float]) -> list[str]:
    """A note if heads of the weighted layer have a weight, and it is too small for an integer."""
    lost = np.flatnonzero((layer.tas_multiplier == 0) & (np.array(weights) != 0)).tolist()
    which = ", ".join(map(str, lost))
    return (
        [f"layers.{index}: weights in TAS of heads {which} are too small beside the largest to count"] if lost else []
    )


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise UsageError(OPTION, f"{path}: {error.strerror}", "a file that can be read", "Check the name.") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(
            OPTION, f"{path} is not JSON ({error})", "a JSON file", "Write [[1, 0.5, ...], ...]."
        ) from error


def _of_layer(index: int, heads: list[Any], count: int, path: Path) -> tuple[float, ...]:
    where = f"layer {index} of {path}"
    if len(heads) != count:
        raise UsageError(OPTION, f"{len(heads)} weights in {where}", f"{count}, one a head", "Write one for each head.")
    numbers = []
    for head, value in enumerate(heads):
        number = _number(value)
        if not math.isfinite(number):
            found = f"{value!r:.40} as the weight of head {head} in {where}"
            raise UsageError(OPTION, found, "a finite number", "Write a number of either sign, or 0.")
        numbers.append(number)
    if not any(numbers):
        raise UsageError(OPTION, f"zeros alone in {where}", "a weight other than 0", "Give a head some weight.")
    return tuple(numbers)


def _number(value: Any) -> float:
    """NaN for what is no number, or none that binary64 holds."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.nan
