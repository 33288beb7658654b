"""Whether an engine computes what the reference computed when the bundle was made; if not, which node is the first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from .backends.engine import EngineBackend
from .backends.golden import first_of, run_golden
from .backends.golden_nodes import NodeVectors
from .bundle.bundle import GOLDEN, GOLDEN_NODES, Bundle
from .generation.agreement import first_unequal, unequal
from .program.trace import code_of, kind_of, layer_of

__all__ = ["Check", "NodeDifference", "NodeResult", "SelfTestReport", "self_test"]

Progress = Callable[[str, int, int], None]
PER_CLIP = (
    "logits",
    "sample",
    "depth.logits",
    "depth.sample",
)  # kinds; the other nodes compute a row for each row of the step


@dataclass(frozen=True)
class NodeDifference:
    """The first value that differs of the first node that does; ``index``: row (or clip) first; ``code``: residual code
    that the depth transformer works on."""

    position: int
    code: int | None
    layer: int | None
    node: str
    index: tuple[int, ...]
    found: float
    expected: float

    def __str__(self) -> str:
        kind = "clip" if kind_of(self.node) in PER_CLIP else "row"
        index = f", index {', '.join(map(str, self.index[1:]))}" if self.index[1:] else ""
        place = f"position {self.position}, {self.node}, {kind} {self.index[0]}{index}"
        return f"{place}: {self.found}; expected {self.expected}"


@dataclass
class NodeResult:
    """One node over all traced steps: how many values were compared, how many of them differ. ``kind``: its name
    without layer and residual code."""

    node: str
    kind: str
    code: int | None
    layer: int | None
    values: int = 0
    differing: int = 0

    @property
    def equal(self) -> bool:
        return self.differing == 0


@dataclass(frozen=True)
class Check:
    """One question and its answer; ``detail`` says what is wrong."""

    name: str
    passed: bool
    detail: str = ""


@dataclass
class SelfTestReport:
    """``nodes`` in the order of execution; ``first``: the difference to look at; ``checks`` in the order made."""

    nodes: list[NodeResult] = field(default_factory=list)
    first: NodeDifference | None = None
    positions: list[int] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return all(check.passed for check in self.checks)

    @property
    def failure(self) -> str | None:
        """One line: what failed first."""
        failed = [check for check in self.checks if not check.passed]
        return f"{failed[0].name}: {failed[0].detail}" if failed else None


def self_test(backend: EngineBackend, bundle: Bundle, on_progress: Progress | None = None) -> SelfTestReport:
    """Memory, then the nodes of a few steps one by one, then the golden clip three times: twice as always, once after
    memory held garbage.

    BundleError if the bundle was exported before nodes were recorded; DeviceError if the device fails, or its memory
    does not hold the bundle.
    """
    progress = on_progress or (lambda stage, done, total: None)
    manifest, report = bundle.manifest, SelfTestReport()
    vectors = NodeVectors.read(bundle.path / GOLDEN_NODES, manifest.config, manifest.frame_layout, manifest.depth)
    if hasattr(backend, "verify_memory"):
        progress("memory", 0, 1)
        backend.verify_memory()
        report.checks.append(Check("memory holds the bundle", True))
        progress("memory", 1, 1)
    _compare_nodes(backend, vectors, report, progress)
    _compare_clips(backend, bundle, report, progress)
    return report


def _compare_nodes(backend: EngineBackend, vectors: NodeVectors, report: SelfTestReport, progress: Progress) -> None:
    report.positions = vectors.positions
    results: dict[str, NodeResult] = {}
    progress("nodes", 0, len(vectors.positions))
    for done, (position, found) in enumerate(vectors.run(backend)):
        for node, expected in vectors.expected[position].items():
            result = results.setdefault(node, NodeResult(node, kind_of(node), code_of(node), layer_of(node)))
            result.values += expected.size
            result.differing += int(np.count_nonzero(unequal(found[node], expected)))
            if report.first is None and (place := first_unequal(found[node], expected)):
                report.first = NodeDifference(position, result.code, result.layer, node, *place)
        progress("nodes", done + 1, len(vectors.positions))
    report.nodes = list(results.values())
    detail = "" if report.first is None else str(report.first)
    report.checks.append(Check("every node as the reference", report.first is None, detail))


def _compare_clips(backend: EngineBackend, bundle: Bundle, report: SelfTestReport, progress: Progress) -> None:
    path, checks = bundle.path / GOLDEN, report.checks
    progress("golden clip", 0, 3)
    first, reference = run_golden(backend, path)
    difference = first_of(first, reference)
    checks.append(Check("the golden clip as the reference", difference is None, str(difference or "")))
    progress("golden clip", 1, 3)
    difference = first_of(run_golden(backend, path)[0], first)
    detail = f"the same clip again differs from the first time: {difference}" if difference else ""
    checks.append(Check("two runs are equal", difference is None, detail))
    progress("golden clip", 2, 3)
    backend.poison = True
    try:
        difference = first_of(run_golden(backend, path)[0], first)
    finally:
        backend.poison = False
    detail = f"a run depends on what memory held before: {difference}" if difference else ""
    checks.append(Check("memory may hold anything before a run", difference is None, detail))
    progress("golden clip", 3, 3)
