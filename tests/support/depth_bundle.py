"""A bundle of a random model with a depth transformer, and a decoder that shows the sum of a place's codes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
from random_models import CODES, depth_config, random_depth_model

from fastcar.export.lower.body import IR_VERSION, OPSET, Body
from fastcar.export.lower.depth import lower_depth
from fastcar.export.lower.graph import lower_backbone
from fastcar.export.overlay.compile import pack_model
from fastcar.toolkit.backends.golden import record_golden
from fastcar.toolkit.backends.golden_nodes import record_nodes
from fastcar.toolkit.backends.reference import ReferenceBackend
from fastcar.toolkit.bundle.bundle import BACKBONE, DECODER, DEPTH, GOLDEN, GOLDEN_NODES, TOKENIZER, WEIGHTS, Bundle
from fastcar.toolkit.bundle.manifest import Manifest
from fastcar.toolkit.bundle.prompts import Prompts
from fastcar.toolkit.bundle.tensor_file import stored_tensors, write_tensors
from fastcar.toolkit.bundle.tensors import model_tensors
from fastcar.toolkit.bundle.write import write_bundle
from fastcar.toolkit.config import BackboneConfig, DepthConfig
from fastcar.toolkit.numerics.rope import rotary_tables
from fastcar.toolkit.numerics.tas import tas_unit
from fastcar.toolkit.program.engine import EngineConfig
from fastcar.toolkit.settings import SamplingSettings

__all__ = ["SAMPLING", "depth_bundle"]

SAMPLING = SamplingSettings(temperature=0.9, top_k=30, top_p=0.95, guidance=2.0)


def depth_bundle(
    target: Path,
    depth: DepthConfig | None = None,
    bits: int = 8,
    shape: BackboneConfig | None = None,
    group: int = 4,
    engine: EngineConfig | None = None,
) -> Bundle:
    """The words of its prompts are "a" and "b". ``engine``: that it is packed for, of a KV260."""
    depth = depth or depth_config(hidden=32)
    model = random_depth_model(bits, depth=depth, shape=shape, group=group)
    config, layout = model.config, model.layout
    prompts = Prompts(pad=0, start=1, words={"a": 2, "b": 3}, phrases=("a b",))

    def fill(folder: Path) -> Manifest:
        write_tensors(folder / WEIGHTS, model_tensors(model))
        stored = stored_tensors(folder / WEIGHTS)
        ir.save(lower_backbone(config, layout, stored, WEIGHTS, depth=depth), folder / BACKBONE)
        ir.save(lower_depth(config, depth, layout, stored, WEIGHTS), folder / DEPTH)
        ir.save(_decoder(), folder / DECODER)
        (folder / TOKENIZER).write_text(prompts.model_dump_json(), "utf-8")
        tokens = np.stack([prompts.encode("a b", layout.prompt_length), prompts.unconditional(layout.prompt_length)])
        backend = ReferenceBackend(model, *rotary_tables(config, layout.positions))
        record_golden(backend, tokens, folder / GOLDEN)
        record_nodes(backend, folder / GOLDEN, folder / GOLDEN_NODES)
        packing = {}
        if engine is not None:
            pack_model(model, engine).write(folder)
            packing = {"board": "kv260", "overlay": engine.name, "engine": engine}
        return Manifest(
            name="depth",
            fastcar="0",
            config=config,
            depth=depth,
            frame_layout=layout,
            frame_rate=8,
            recipe={"name": "random"},
            sampling=SAMPLING,
            tas_query="post_rope",
            tas_unit=tuple(tas_unit(layer.tas_scale, config.heads, config.head_dim) for layer in model.layers),
            thresholds=(None,) * config.layers,
            record={},
            files={},
            **packing,
        )

    return write_bundle(target, fill)


def _decoder() -> ir.Model:
    """codes int64 (frames, height, width, D) -> grey levels (frames, height, width, 3) uint8: their sum times 255 / D /
    ``CODES``, rounded down."""
    op, name = Body(), ["frames", "height", "width"]
    codes = ir.Value(name="codes", shape=ir.Shape([*name, "depth"]), type=ir.TensorType(ir.DataType.INT64))
    total = op("Mul", op.reduce("Sum", codes, -1), np.int64(255))
    most = op("Mul", op("Shape", codes, start=3), np.int64(CODES))
    grey = op.cast(op("Div", total, most), ir.DataType.UINT8)
    frames = op("Concat", grey, grey, grey, axis=3)
    frames.name, frames.type, frames.shape = "frames", ir.TensorType(ir.DataType.UINT8), ir.Shape([*name, 3])
    graph = ir.Graph([codes], [frames], nodes=op.tape.nodes, opset_imports={"": OPSET}, name="decoder")
    return ir.Model(graph, ir_version=IR_VERSION)
