"""The ``ai.fastcar`` functions that only models with a depth transformer call."""

from __future__ import annotations

from functools import partial

import numpy as np
import onnx_ir as ir

from ...toolkit.config import BackboneConfig, DepthConfig
from . import attention, layer_norm, linear, norm, rope
from .body import Body, Library
from .functions import ATTENTION_INPUTS, LinearForm, define_code_embedding, define_linear, define_sample

__all__ = ["define_depth_functions", "quantize_heads"]


def quantize_heads(op: Body, qkv: ir.Value, scale: ir.Value, *, config: DepthConfig) -> tuple[ir.Value, ...]:
    """qkv (rows, 3 hidden) -> q, k, v uint8 (rows, heads, head_dim); scale (3 heads,)."""
    heads = op.reshape(qkv, -1, 3 * config.heads, config.head_dim)
    integers = rope.quantize_heads(op, heads, scale, 3 * config.heads)
    return op("Split", integers, np.full(3, config.heads, np.int64), outputs=3, axis=1)


def define_depth_functions(
    backbone: BackboneConfig, config: DepthConfig, codes: int, forms: list[LinearForm]
) -> dict[str, ir.Function]:
    """All functions that a depth graph calls, its linear layers stored in ``forms``."""
    library = Library()
    define_code_embedding(library, config, codes, config.mlp)
    final_norm = partial(norm.rms_norm, eps=backbone.norm_eps, hidden=backbone.hidden)
    library.define("RMSNorm", final_norm, ["x", "gain"], ["values", "scale"], "RMSNorm with int8 output.")
    library.define("QuantizeRows", linear.quantize_rows, ["x"], ["values", "scale"], "Dynamic int8 rows.")
    for form in {form.function: form for form in forms}.values():
        define_linear(library, form)
    library.define(
        "LayerNorm",
        partial(layer_norm.layer_norm, eps=config.norm_eps, hidden=config.hidden),
        ["x", "gain", "bias"],
        ["values", "scale"],
        "LayerNorm with int8 output.",
    )
    library.define(
        "QuantizeHeads",
        partial(quantize_heads, config=config),
        ["qkv", "scale"],
        ["q", "k", "v"],
        "int8 quantization of q, k, v.",
    )
    library.define(
        "Attention",
        partial(attention.attention, config=config),
        ATTENTION_INPUTS,
        ["y"],
        "Attention over the codes before and the current one, exact in integers up to one division.",
    )
    define_sample(library, codes)
    return library.functions
