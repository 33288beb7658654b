"""Two back ends on the same clip: equal bits, or the first node of the first layer that differs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..backends.protocol import Backend, FrameRecord

__all__ = ["Difference", "Recorder", "first_difference", "first_unequal", "unequal"]

RECORDED = {  # what a record holds, in the order a step computes it, with the graph's node
    "scores": "TemporalAttentionScore",
    "replay": "ReplayDecision",
    "logits": "QuantLinear (head)",
    "codes": "Sample",
}

LAYER_VALUES = {  # of a layer, in the order a step computes them
    "k": "RotaryEmbedding (k)",
    "v": "RotaryEmbedding (v)",
    "scores": "TemporalAttentionScore",
    "replay": "ReplayDecision",
    "mlp_output": "ReplayMLP (bfloat16 bits)",
}


@dataclass(frozen=True)
class Difference:
    """The first value that differs; ``index`` counts within the layer's values: (row, ...) or (clip, ..., code)."""

    frame: int
    position: int
    layer: int | None
    node: str
    index: tuple[int, ...]
    found: float
    expected: float

    def __str__(self) -> str:
        place = "" if self.layer is None else f", layer {self.layer}"
        index = ", ".join(map(str, self.index))
        return (
            f"frame {self.frame}, position {self.position}{place}, {self.node}[{index}]: "
            f"{self.found}; expected {self.expected}"
        )


class Recorder:
    """A back end that keeps what it was asked and what it answered, so that a run can be repeated up to any step."""

    def __init__(self, backend: Backend) -> None:
        self.backend, self.name = backend, backend.name
        self.config, self.layout, self.depth = backend.config, backend.layout, backend.depth
        self.decoded: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        self.records: list[FrameRecord] = []

    def start(self, *settings: Any) -> None:
        """As the back end's, but logits are always recorded."""
        self._start = (*settings[:5], True)
        self.decoded, self.records = [], []
        self.backend.start(*self._start)

    def prefill(self, tokens: np.ndarray) -> None:
        self._prompt = tokens.copy()
        self.backend.prefill(tokens)

    def score(self, tokens: np.ndarray, following: np.ndarray | None = None) -> np.ndarray:
        return self.backend.score(tokens, following)

    def decode(self, tokens: np.ndarray, uniforms: np.ndarray, thresholds: np.ndarray) -> FrameRecord:
        self.decoded.append((tokens.copy(), uniforms.copy(), thresholds.copy()))
        self.records.append(self.backend.decode(tokens, uniforms, thresholds))
        return self.records[-1]

    def counters(self) -> dict[str, int]:
        return self.backend.counters()

    def cached(self, position: int) -> dict[str, np.ndarray]:
        return self.backend.cached(position)

    def repeat(self, frame: int, steps: int) -> None:
        """Run the prompt, the frames before ``frame`` and its first ``steps`` steps again."""
        self.backend.start(*self._start)
        self.backend.prefill(self._prompt)
        for index, (tokens, uniforms, thresholds) in enumerate(self.decoded[: frame + 1]):
            self.backend.decode(tokens, uniforms if index < frame else uniforms[:steps], thresholds)


def first_difference(found: Recorder, expected: Recorder) -> Difference | None:
    """None if the two recorded runs are equal.

    Otherwise both are repeated up to the first step whose record differs, and what the steps left in their caches is
    compared too: position by position, layer by layer, in the order a step computes it.
    """
    for frame, (one, other) in enumerate(zip(found.records, expected.records, strict=True)):
        differences = [unequal(getattr(one, name), getattr(other, name)) for name in RECORDED]
        steps = [int(np.argwhere(different)[0][0]) for different in differences if different.any()]
        if steps:
            step = min(steps)
            found.repeat(frame, step + 1)
            expected.repeat(frame, step + 1)
            last = one.first + step
            for position in range(last + 1):
                records = (_of_step(one, step), _of_step(other, step)) if position == last else ({}, {})
                difference = _at_position(found, expected, position, last, *records)
                if difference:
                    return difference
    return None


def _at_position(
    found: Recorder, expected: Recorder, position: int, last: int, one: dict[str, Any], other: dict[str, Any]
) -> Difference | None:
    """``one`` and ``other``: what was recorded of the step, for the last position only."""
    places = found.layout.tokens_per_frame
    frame = max(position - found.layout.prompt_length, 0) // places
    kept = ["k", "v"] + (["mlp_output"] if position > last - places else [])  # later places overwrite the outputs
    caches = found.cached(position), expected.cached(position)
    for layer in range(found.config.layers):
        for name, node in LAYER_VALUES.items():
            if name in kept:
                pair = caches[0][name][layer], caches[1][name][layer]
            elif name in one:
                pair = one[name][layer], other[name][layer]
            else:
                continue
            if place := first_unequal(*pair):
                return Difference(frame, position, layer, node, *place)
    if place := _first_of_predictions(one, other):
        return Difference(frame, position, None, *place)
    return None


def _first_of_predictions(
    one: dict[str, Any], other: dict[str, Any]
) -> tuple[str, tuple[int, ...], float, float] | None:
    """Node, index and both values. Of several codes a position, the logits of each follow from the codes before it."""
    if not one:
        return None
    depths = range(one["codes"].shape[1]) if one["codes"].ndim == 2 else (None,)
    for depth in depths:
        own = ... if depth is None else np.s_[:, depth]
        for name in ("logits", "codes"):
            if place := first_unequal(one[name][own], other[name][own]):
                (clip, *rest), found, expected = place
                index = (clip, *rest) if depth is None else (clip, depth, *rest)
                return RECORDED[name], index, found, expected
    return None


def _of_step(record: FrameRecord, step: int) -> dict[str, Any]:
    return {name: getattr(record, name)[step] for name in RECORDED}


def unequal(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Bit for bit: a NaN equals itself, the two zeros differ."""
    if one.dtype == np.float32:
        return one.view(np.uint32) != other.view(np.uint32)
    return one != other


def first_unequal(one: np.ndarray, other: np.ndarray) -> tuple[tuple[int, ...], float, float] | None:
    """Index and both values; None if all are equal."""
    where = np.argwhere(unequal(np.ascontiguousarray(one), np.ascontiguousarray(other)))
    if not len(where):
        return None
    index = tuple(map(int, where[0]))
    return index, one[index].item(), other[index].item()
