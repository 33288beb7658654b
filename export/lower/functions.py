"""The ``ai.fastcar`` functions of one model: each node of the numerics contract by name, with its sizes inside."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import onnx_ir as ir

from ...toolkit.config import BackboneConfig, DepthConfig
from . import attention, code_embedding, gelu, linear, mlp, norm, rope, sampling, similarity, tas
from .body import Body, Library

__all__ = [
    "ATTENTION_INPUTS",
    "LinearForm",
    "define_code_embedding",
    "define_functions",
    "define_linear",
    "define_sample",
]

ATTENTION_INPUTS = ("q", "k", "v", "k_cache", "v_cache", "mask", "exponent", "v_scale")
ATTENTION_INPUTS += ("table", "table_high", "table_low")


class LinearForm:
    """How one linear layer's weights are stored: 8 bit, or 4 bit with a group size; with a bias or without."""

    def __init__(self, group_size: int | None, bias: bool = False) -> None:
        self.group_size = group_size
        parts = ("weight", "scale") if group_size is None else ("weight", "multiplier", "scale")
        self.parts = (*parts, "bias") if bias else parts
        storage = "" if group_size is None else f"Int4G{group_size}"
        self.function = f"QuantLinear{storage}{'Bias' if bias else ''}"

    def emit(self, op: Body, values: ir.Value, row_scale: ir.Value, weights: Sequence[ir.Value]) -> ir.Value:
        if self.group_size is None:
            return linear.quant_linear(op, values, row_scale, *weights)
        weight, multiplier, *scale_and_bias = weights
        expanded = linear.expand_int4(op, weight, multiplier, self.group_size)
        return linear.quant_linear(op, values, row_scale, expanded, *scale_and_bias)


def define_functions(
    config: BackboneConfig,
    codes: int,
    forms: dict[str, LinearForm],
    *,
    pre_rope: bool,
    tas_heads: str = "mean",
    depth: DepthConfig | None = None,
    criterion: str = "tas",
) -> dict[str, ir.Function]:
    """All functions a backbone of this shape calls.

    ``forms`` by linear layer: qkv, output, gate_up, down and head, or with a depth transformer projector.N.
    """
    library = Library()
    _define_linears(library, config, forms)
    q_parts = ["q", "k", "v", *(["q_before_rotation"] if pre_rope else [])]
    library.define(
        "RotaryEmbedding",
        partial(rope.rotary_embedding, config=config, pre=pre_rope),
        ["qkv", "cos", "sin", "scale"],
        q_parts,
        "Rotary embedding and int8 quantization of q, k, v.",
    )
    if criterion == "tas":
        library.define(
            "TemporalAttentionScore",
            partial(tas.temporal_attention_score, config=config, tas_heads=tas_heads),
            ["q", "k_cache", "slot_before", "multiplier"],
            ["score"],
            f"Integer q.k towards the same place one frame earlier, {tas_heads} of all heads.",
        )
    else:
        library.define(
            "InputSimilarity",
            similarity.input_similarity,
            ["values", "before"],
            ["score"],
            "Cosine of the MLP's input and the one the cached output was computed from.",
        )
    library.define(
        "ReplayDecision",
        tas.replay_decision,
        ["score", "threshold", "eligible", "age", "max_age", "pool", "vote"],
        ["replay"],
        "Whether each row replays its cached MLP output in this layer.",
    )
    library.define(
        "Attention",
        partial(attention.attention, config=config),
        ATTENTION_INPUTS,
        ["y"],
        "Attention over the cached positions and the current one, exact in integers up to one division.",
    )
    if criterion == "tas":
        library.define(
            "ReplayMLP",
            partial(mlp.replay_mlp, config=config, linear=_mlp_linear(forms)),
            ["x", "replay", "cached", "gain", "sigmoid_table", *_mlp_parts(forms)],
            ["used", "to_cache"],
            "RMSNorm and SwiGLU MLP of the rows that compute; cached outputs for the rows that replay.",
        )
    else:
        library.define(
            "ReplayMLP",
            partial(mlp.replay_normed_mlp, config=config, linear=_mlp_linear(forms)),
            ["values", "scale", "replay", "cached", "sigmoid_table", *_mlp_parts(forms)],
            ["used", "to_cache"],
            "SwiGLU MLP of the rows that compute; cached outputs for the rows that replay.",
        )
    if depth is not None:
        define_code_embedding(library, depth, codes, config.hidden)
        return library.functions
    define_sample(library, codes)
    return library.functions


def _define_linears(library: Library, config: BackboneConfig, forms: dict[str, LinearForm]) -> None:
    norm_emit = partial(norm.rms_norm, eps=config.norm_eps, hidden=config.hidden)
    library.define("RMSNorm", norm_emit, ["x", "gain"], ["values", "scale"], "RMSNorm with int8 output.")
    library.define("QuantizeRows", linear.quantize_rows, ["x"], ["values", "scale"], "Dynamic int8 rows.")
    called = [form for name, form in forms.items() if name in ("qkv", "output", "head") or name.startswith("projector")]
    for form in {form.function: form for form in called}.values():
        define_linear(library, form)


def define_code_embedding(library: Library, config: DepthConfig, codes: int, width: int) -> None:
    """What turns codes into what the backbone reads; ``width``: of the GELU in the projector."""
    library.define(
        "CodeEmbedding",
        partial(code_embedding.code_embedding, codes=codes, config=config),
        ["code", "index", "codebook"],
        ["y"],
        "The embedding of one residual code of each row.",
    )
    library.define("GELU", partial(gelu.gelu, width=width), ["x", "table"], ["y"], "x * Phi(x), Phi from a table.")


def define_linear(library: Library, form: LinearForm) -> None:
    library.define(
        form.function,
        lambda op, values, scale, *weights: form.emit(op, values, scale, weights),
        ["values", "row_scale", *form.parts],
        ["y"],
        "Integer linear layer; activations uint8 with zero point 128.",
    )


def _mlp_parts(forms: dict[str, LinearForm]) -> list[str]:
    return [f"{name}_{part}" for name in ("gate_up", "down") for part in forms[name].parts]


def _mlp_linear(forms: dict[str, LinearForm]) -> mlp.Linear:
    if forms["gate_up"].function != forms["down"].function:
        raise ValueError("gate_up and down are stored differently; ReplayMLP expects one form for both")
    return forms["down"].emit


def define_sample(library: Library, codes: int) -> None:
    library.define(
        "Sample",
        partial(sampling.sample, codes=codes),
        ["logits", "uniform", "inverse_temperature", "top_k", "top_p", "table"],
        ["code"],
        "Temperature, top-k and top-p sampling decided by integers.",
    )
