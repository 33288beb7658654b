"""The backbone's files of a bundle but its weights: the step graph over them, and what the reference makes of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir

from ..toolkit.backends.golden import record_golden
from ..toolkit.backends.golden_nodes import record_nodes
from ..toolkit.backends.reference import ReferenceBackend
from ..toolkit.bundle.bundle import BACKBONE, DEPTH, GOLDEN, GOLDEN_NODES, WEIGHTS
from ..toolkit.bundle.prompts import Prompts
from ..toolkit.bundle.tensor_file import stored_tensors
from ..toolkit.bundle.text_prompts import TextPrompts
from ..toolkit.config import BackboneConfig, DepthConfig, FrameLayout
from ..toolkit.numerics.rope import rotary_tables
from ..toolkit.numerics.weights import IntegerModel
from .lower.depth import lower_depth
from .lower.graph import lower_backbone

__all__ = ["write_golden", "write_graph"]


def write_graph(
    folder: Path,
    config: BackboneConfig,
    layout: FrameLayout,
    tas_query: str,
    depth: DepthConfig | None = None,
    criterion: str = "tas",
    tas_heads: str = "mean",
) -> None:
    """The graph of a step and that of a depth transformer; they read the weight file of ``folder`` in place.

    Checked by onnx's full check.
    """
    stored = stored_tensors(folder / WEIGHTS)
    scoring = {"criterion": criterion, "tas_heads": tas_heads}
    graphs = {BACKBONE: lower_backbone(config, layout, stored, WEIGHTS, tas_query, depth, **scoring)}
    if depth:
        graphs[DEPTH] = lower_depth(config, depth, layout, stored, WEIGHTS)
    for name, graph in graphs.items():
        ir.save(graph, folder / name)
        onnx.checker.check_model(str(folder / name), full_check=True)


def write_golden(
    folder: Path, model: IntegerModel, prompts: Prompts | TextPrompts, progress: Callable[[str, int, int], None]
) -> None:
    """A few steps of the NumPy reference, for every back end to be compared with; the nodes of some for engines."""
    progress("golden clip", 0, 2)
    length = model.layout.prompt_length
    tokens = np.stack([prompts.encode(prompts.known[0], length), prompts.unconditional(length)])
    backend = ReferenceBackend(model, *rotary_tables(model.config, model.layout.positions))
    record_golden(backend, tokens, folder / GOLDEN)
    progress("golden clip", 1, 2)
    record_nodes(backend, folder / GOLDEN, folder / GOLDEN_NODES)
    progress("golden clip", 2, 2)
