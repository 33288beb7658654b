"""What the reference's nodes computed in a few steps when the bundle was made, for an engine to be compared with.

Three steps: position 0, whose attention sees only itself; the last position of the prompt; and the last one of the
golden clip, in frame 1, where odd layers replay. The text between them is given: a step that goes wrong does not change
what the next one reads. A step takes rows * layers * (10 * hidden + 6 * q + 10 * k + mlp) bytes, q and k the widths of
queries and keys, and little more: 0.08 MB for ``car``, 1.8 MB for a model of 1.1 B parameters, 7.8 MB for 32 layers of
4096 (MLP 11008, 32 key/value heads).
"""

from __future__ import annotations

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

__all__ = ["NodeVectors", "TracingBackend", "record_nodes"]

Arrays = dict[str, np.ndarray]
GIVEN = ("tokens", "traced", "uniforms", "thresholds")


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
    """``tokens`` (2, n): the text; ``traced``: positions; ``uniforms`` (traced, 1); ``thresholds`` (layers,)."""

    def __init__(self, given: Arrays, expected: dict[int, Arrays]) -> None:
        self.given, self.expected = given, expected

    @property
    def positions(self) -> list[int]:
        return self.given["traced"].tolist()

    def run(self, backend: TracingBackend) -> Iterator[tuple[int, Arrays]]:
        """Each traced position with the values that the back end's nodes have there."""
        tokens, done = self.given["tokens"], 0
        backend.traced = True
        try:
            backend.start(1, tokens.shape[1], SAMPLING, ReplaySettings())
        finally:
            backend.traced = False
        for uniforms, position in zip(self.given["uniforms"], self.positions, strict=True):
            backend.prefill(tokens[:, done:position])
            yield position, backend.trace(tokens[:, position], uniforms[None], self.given["thresholds"])
            done = position + 1

    def write(self, path: Path) -> None:
        values = {f"{position}.{name}": x for position, found in self.expected.items() for name, x in found.items()}
        save_file({name: np.ascontiguousarray(array) for name, array in (self.given | values).items()}, path)

    @classmethod
    def read(cls, path: Path, config: BackboneConfig, layout: FrameLayout) -> NodeVectors:
        """Values in the order in which a step computes them. BundleError if there are none, or of another version."""
        stored = load_file(path) if path.is_file() else {}
        try:
            given = {name: stored[name] for name in GIVEN}
            names = TraceLayout(config, layout.codes, len(given["tokens"]), 1).arrays
            positions = given["traced"].tolist()
            expected = {position: {name: stored[f"{position}.{name}"] for name in names} for position in positions}
        except KeyError as error:
            found = f"no {error.args[0]}" if stored else "missing"
            raise BundleError(path, found, "values of the nodes, recorded at export", "Export again.") from error
        return cls(given, expected)


def record_nodes(backend: TracingBackend, clip: Path, path: Path) -> None:
    """Trace ``backend`` over the golden clip's text and store what its nodes compute.

    Nothing for a model with a depth transformer or another criterion than TAS: there is no engine to compare.
    """
    if backend.depth is not None or backend.criterion != "tas":
        return
    golden, layout = load_file(clip), backend.layout
    codes = golden["codes"][:-1, 0]  # the last one is read by no step
    forced = layout.forced(golden["tokens"].shape[1], len(codes))
    behind = np.where(forced == SAMPLED, codes + layout.code_offset, forced)
    text = np.concatenate([golden["tokens"], np.broadcast_to(behind, (2, len(behind)))], axis=1)
    traced = sorted({0, golden["tokens"].shape[1] - 1, text.shape[1] - 1})
    given = {
        "tokens": text,
        "traced": np.array(traced, np.int64),
        "uniforms": golden["uniforms"][: len(traced)],
        "thresholds": golden["thresholds"],
    }
    vectors = NodeVectors(given, {})
    vectors.expected.update(vectors.run(backend))
    vectors.write(path)
