"""A 4-bit bundle with its weights multiplied out to 8 bits: the same integers, so the same bits from every back end.

onnxruntime multiplies 4-bit weights out when it loads a graph, with several bytes a weight on the way: a model of
billions needs more memory for that than a workstation has. Of 8-bit weights it maps the file.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import TypeVar

from ..toolkit.bundle.bundle import DECODER, GOLDEN, GOLDEN_NODES, TOKENIZER, WEIGHTS, Bundle
from ..toolkit.bundle.depth_tensors import depth_tensors
from ..toolkit.bundle.manifest import Manifest
from ..toolkit.bundle.tensor_file import TensorWriter
from ..toolkit.bundle.tensors import head_tensors, layer_tensors, planned_tensors, table_tensors
from ..toolkit.bundle.write import write_bundle
from ..toolkit.errors import UsageError
from ..toolkit.numerics.weights import DepthWeights, LinearWeights
from ..toolkit.output import check_output_folder
from .backbone import write_graph

__all__ = ["expand_bundle"]

Weights = TypeVar("Weights")
KEPT = (DECODER, GOLDEN, GOLDEN_NODES, TOKENIZER)


def expand_bundle(
    bundle: Bundle,
    out: Path,
    overwrite: bool = False,
    progress: Callable[[str, int, int], None] = lambda stage, done, total: None,
) -> Bundle:
    """UsageError if there are no 4-bit weights; OutputError if there is no room for twice as many bytes.

    A packing for an overlay is left out: engines take 4-bit weights as they are.
    """
    manifest = bundle.manifest
    if manifest.recipe.get("weight_bit_width") != 4:
        found = f"{manifest.recipe.get('weight_bit_width')}-bit weights"
        raise UsageError(bundle.path, found, "a bundle with 4-bit weights", "Use it as it is.")
    specs = planned_tensors(manifest.config, manifest.frame_layout, None, manifest.depth)
    check_output_folder(out.parent, bytes_needed=sum(spec.bytes for spec in specs.values()))

    def fill(folder: Path) -> Manifest:
        model, _ = bundle.model()
        writer = TensorWriter(folder / WEIGHTS, specs)
        writer.write(table_tensors(model.config, model.layout) | {"embedding": model.embedding})
        for index in range(len(model.layers)):
            writer.write(layer_tensors(index, _expanded(model.layers[index]), model.config))
            progress("expanding", index + 1, len(model.layers))
        if model.depth:
            writer.write(depth_tensors(_expanded_depth(model.depth), model.final_gain))
        else:
            writer.write(head_tensors(model.head, model.final_gain))
        scored = (model.tas_query, manifest.depth, model.criterion, model.tas_heads)
        write_graph(folder, model.config, model.layout, *scored)
        for name in KEPT:
            if name in manifest.files:
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(bundle.path / name, folder / name)
        recipe = manifest.recipe | {"name": f"{manifest.recipe['name']}, expanded to 8 bits"}
        return manifest.model_copy(
            update={"recipe": recipe, "board": None, "overlay": None, "engine": None, "files": {}}
        )

    return write_bundle(out, fill, overwrite)


def _expanded(weights: Weights) -> Weights:
    """With every linear layer of these weights multiplied out."""
    linears = {field.name: getattr(weights, field.name) for field in fields(weights)}
    return replace(
        weights,
        **{
            name: LinearWeights(linear.expanded(), linear.scale, None, linear.bias)
            for name, linear in linears.items()
            if isinstance(linear, LinearWeights)
        },
    )


def _expanded_depth(depth: DepthWeights) -> DepthWeights:
    return replace(depth, blocks=tuple(map(_expanded, depth.blocks)))
