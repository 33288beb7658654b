"""Where the time of a step goes under onnxruntime, node by node: dense, and with every MLP replayed.

The ratio of the two is the most that replay can gain on this machine.
"""

from __future__ import annotations

import json
import re
import time
from bisect import bisect
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from ..bundle.bundle import BACKBONE, Bundle
from ..numerics.tas import NEVER
from ..settings import ReplaySettings
from .onnxruntime import OnnxRuntimeBackend

__all__ = ["StepProfile", "StepTimes", "profile_steps"]

FUNCTION = re.compile(r"_inlfunc_([A-Z][A-Za-z]*)")
OF_SUBGRAPHS = ("If", "Loop", "Scan")  # their time is that of the nodes in them
OTHER = "others"


@dataclass(frozen=True)
class StepTimes:
    """Seconds of a step: as a whole (median), and, on average, in the nodes of each name and the depth transformer.

    ``replayed``: share of MLP evaluations that were.
    """

    total: float
    nodes: dict[str, float]
    replayed: float


@dataclass(frozen=True)
class StepProfile:
    """``loaded``: seconds until the graph could run; ``position``, where the steps are, in the middle of a clip."""

    loaded: float
    position: int
    dense: StepTimes
    all_replayed: StepTimes

    @property
    def ratio(self) -> float:
        return self.dense.total / self.all_replayed.total


def profile_steps(bundle: Bundle, steps: int = 3, threads: int | None = None) -> StepProfile:
    """Steps of one clip, guided if the bundle is, after one that is not counted; time does not depend on the codes.

    UsageError if onnxruntime is not installed.
    """
    manifest = bundle.manifest
    layout, config = manifest.frame_layout, manifest.config
    with TemporaryDirectory(prefix="fastcar-") as folder:
        began = time.perf_counter()
        options = {"depth": manifest.depth, "criterion": manifest.criterion, "profile": Path(folder)}
        backend = OnnxRuntimeBackend(bundle.path / BACKBONE, config, layout, threads, **options)
        loaded = time.perf_counter() - began
        position = layout.frame_start(max(1, layout.frames // 2))
        backend.start(1, layout.positions, manifest.sampling, ReplaySettings(), logits=False)
        backend.state.pretend(position)
        backend.caches_replaced()
        layers, rng = config.layers, np.random.default_rng(0)
        shape = backend.sampling["uniform"].shape
        ways = {"warm-up": (1, NEVER), "dense": (steps, NEVER), "replayed": (steps, -NEVER)}
        seconds, shares = {}, {}
        for way, (count, threshold) in ways.items():
            tokens = np.full(backend.state.rows, 0 if manifest.depth else layout.code_offset)
            seconds[way] = []
            for _ in range(count):
                uniforms = rng.integers(0, 1 << 24, (1, *shape))
                record = backend.decode(tokens, uniforms, np.full(layers, threshold))
                seconds[way].append(record.seconds)
            shares[way] = float(record.replay.mean())
        nodes = _by_step([json.loads(path.read_text("utf-8")) for path in backend.finish_profile()])
    times = []
    for way, first in (("dense", 1), ("replayed", 1 + steps)):
        counted = nodes[first : first + steps]
        names = sorted({name for step in counted for name in step})
        means = {name: sum(step.get(name, 0.0) for step in counted) / steps for name in names}
        times.append(StepTimes(float(np.median(seconds[way])), means, shares[way]))
    return StepProfile(loaded, position, *times)


def _by_step(traces: list[list[dict]]) -> list[dict[str, float]]:
    """Seconds by node of each step; the first trace is the backbone's, a second one the depth transformer's."""
    steps: list[dict[str, float]] = []
    for index, events in enumerate(traces):
        starts = sorted(event["ts"] for event in events if event["name"] == "model_run")
        found = [defaultdict(float) for _ in starts]
        for event in events:
            kernel = event.get("cat") == "Node" and event["name"].endswith("kernel_time")
            if kernel and event["args"]["op_name"] not in OF_SUBGRAPHS:
                name = "depth transformer" if index else _node(event["name"])
                found[bisect(starts, event["ts"]) - 1][name] += event["dur"] / 1e6
        steps = [{**step, **more} for step, more in zip(steps, found, strict=True)] if index else list(map(dict, found))
    return steps


def _node(name: str) -> str:
    match = FUNCTION.match(name)
    return match[1].removesuffix("Bias").removesuffix("Int") if match else OTHER
