"""What the reference's nodes computed in a few steps when the bundle was made, for an engine to be compared with.

Three steps: position 0, whose attention sees only itself; the last position of the prompt; and the last one of the
golden clip, in frame 1, where odd layers replay. The text between them is given: a step that goes wrong does not change
what the next one reads. A step takes rows * layers * (10 * hidden + 6 * q + 10 * k + mlp) bytes, q and k the widths of
queries and keys, and little more: 0.08 MB for ``car``, 1.8 MB for a model of 1.1 B parameters, 7.8 MB for 32 layers of
4096 (MLP 11008, 32 key/value heads). A depth transformer takes rows * layers * (26 * hidden + mlp) bytes more for each
residual code of a position, and rows * 4 bytes for each entry of the codebook.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import numpy as np
from safetensors.numpy import load_file, save_file

from ..config import SAMPLED, BackboneConfig, DepthConfig, FrameLayout
from ..errors import BundleError
from ..program.trace import TraceLayout
from ..settings import ReplaySettings, SamplingSettings
from .golden import SAMPLING

__all__ = ["NodeVectors", "TracingBackend", "nodes_bytes", "record_nodes"]

Arrays = dict[str, np.ndarray]
GIVEN = ("tokens", "traced", "uniforms", "thresholds")
TRACED = 3


class TracingBackend(Protocol):
    """A back end that can tell what the nodes of a step left behind; ``start`` makes room for it if ``traced``."""

    name: str
    config: BackboneConfig
    layout: FrameLayout
    depth: DepthConfig | None
    criterion: str
    traced: bool

    def start(self, clips: int, limit: int, sampling: SamplingSettings, replay: ReplaySettings) -> None: ...

    def prefill(self, tokens: np.ndarray) -> None: ...

    def trace(self, tokens: np.ndarray, uniforms: np.ndarray, thresholds: np.ndarray) -> Arrays: ...


class NodeVectors:
    """``tokens`` (2, n): the text; ``traced``: positions; ``uniforms`` (traced, 1); ``thresholds`` (layers,).

    With a depth transformer of D codes a position ``codes`` (2, n, D): the text behind the tokens, which are the
    prompt's; ``uniforms`` (traced, 1, D).
    """

    def __init__(self, given: Arrays, expected: dict[int, Arrays]) -> None:
        self.given, self.expected = given, expected

    @property
    def positions(self) -> list[int]:
        return self.given["traced"].tolist()

    def run(self, backend: TracingBackend) -> Iterator[tuple[int, Arrays]]:
        """Each traced position with the values that the back end's nodes have there."""
        done = 0
        backend.traced = True
        try:
            backend.start(1, sum(part.shape[1] for part in self._parts()), SAMPLING, ReplaySettings())
        finally:
            backend.traced = False
        for uniforms, position in zip(self.given["uniforms"], self.positions, strict=True):
            for part in self._between(done, position):
                backend.prefill(part)
            read = self._between(position, position + 1)[0][:, 0]
            yield position, backend.trace(read, uniforms[None], self.given["thresholds"])
            done = position + 1

    def _parts(self) -> list[np.ndarray]:
        return [self.given[name] for name in ("tokens", "codes") if name in self.given]

    def _between(self, first: int, end: int) -> list[np.ndarray]:
        """The text's positions ``first`` to ``end``: tokens, codes, or both."""
        found, begin = [], 0
        for part in self._parts():
            own = part[:, max(first - begin, 0) : max(end - begin, 0)]
            found += [own] if own.shape[1] else []
            begin += part.shape[1]
        return found

    def write(self, path: Path) -> None:
        values = {f"{position}.{name}": x for position, found in self.expected.items() for name, x in found.items()}
        save_file({name: np.ascontiguousarray(array) for name, array in (self.given | values).items()}, path)

    @classmethod
    def read(
        cls, path: Path, config: BackboneConfig, layout: FrameLayout, depth: DepthConfig | None = None
    ) -> NodeVectors:
        """Values in the order in which a step computes them. BundleError if there are none, or of another version."""
        stored = load_file(path) if path.is_file() else {}
        try:
            given = {name: stored[name] for name in (*GIVEN, *([] if depth is None else ["codes"]))}
            names = TraceLayout(config, layout.codes, len(given["tokens"]), 1, depth).arrays
            positions = given["traced"].tolist()
            expected = {position: {name: stored[f"{position}.{name}"] for name in names} for position in positions}
        except KeyError as error:
            found = f"no {error.args[0]}" if stored else "missing"
            raise BundleError(path, found, "values of the nodes, recorded at export", "Export again.") from error
        return cls(given, expected)


def nodes_bytes(config: BackboneConfig, layout: FrameLayout, depth: DepthConfig | None = None) -> int:
    """Of the values that ``record_nodes`` stores; the text and the file's header come on top."""
    arrays = TraceLayout(config, layout.codes, 2, 1, depth).arrays
    return TRACED * sum(math.prod(shape) * dtype.itemsize for shape, dtype in arrays.values())


def record_nodes(backend: TracingBackend, clip: Path, path: Path) -> None:
    """Trace ``backend`` over the golden clip's text and store what its nodes compute.

    Nothing for a model with another criterion than TAS: there is no engine to compare.
    """
    if backend.criterion != "tas":
        return
    golden = load_file(clip)
    text = _text(golden, backend.layout, backend.depth)
    prompt = golden["tokens"].shape[1]
    traced = sorted({0, prompt - 1, sum(part.shape[1] for part in text.values()) - 1})
    given = {
        **text,
        "traced": np.array(traced, np.int64),
        "uniforms": golden["uniforms"][: len(traced)],
        "thresholds": golden["thresholds"],
    }
    vectors = NodeVectors(given, {})
    vectors.expected.update(vectors.run(backend))
    vectors.write(path)


def _text(golden: Arrays, layout: FrameLayout, depth: DepthConfig | None) -> Arrays:
    """What the golden clip's steps read: ``tokens``, and ``codes`` with a depth transformer."""
    tokens, codes = golden["tokens"], golden["codes"][:-1]  # the last one is read by no step
    if depth is not None:
        return {"tokens": tokens, "codes": np.tile(codes.swapaxes(0, 1), (len(tokens), 1, 1))}
    forced = layout.forced(tokens.shape[1], len(codes))
    behind = np.where(forced == SAMPLED, codes[:, 0] + layout.code_offset, forced)
    return {"tokens": np.concatenate([tokens, np.broadcast_to(behind, (len(tokens), len(behind)))], axis=1)}
