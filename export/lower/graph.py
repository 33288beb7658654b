"""One decode step as an ONNX graph: a pure function of tokens, caches and settings."""

from __future__ import annotations

import ml_dtypes  # noqa: F401  (registers bfloat16 for onnx-ir)
import numpy as np
import onnx_ir as ir

from ...toolkit.bundle.tensor_file import StoredTensor
from ...toolkit.config import CRITERIA, TAS_HEADS, BackboneConfig, DepthConfig, FrameLayout
from ...toolkit.numerics.depth import TEXT
from .builder import GraphBuilder
from .code_embedding import embed_codes
from .functions import define_functions
from .sampling import guided_logits

__all__ = ["lower_backbone"]

D = ir.DataType
LINEARS = ("qkv", "output", "gate_up", "down")


def lower_backbone(
    config: BackboneConfig,
    layout: FrameLayout,
    stored: dict[str, StoredTensor],
    weight_file: str,
    tas_query: str = "post_rope",
    depth: DepthConfig | None = None,
    criterion: str = "tas",
    tas_heads: str = "mean",
) -> ir.Model:
    """The step graph over the tensors of ``weight_file``; ValueError for an unknown ``tas_query``, ``criterion`` or
    ``tas_heads``.

    Inputs: tokens, position (rows,); k_cache.L, v_cache.L uint8 (rows, kv_heads, slots, head_dim); mask int32
    (rows, slots); slot_before, eligible, replay_cache bfloat16 (layers * rows, hidden), age (layers * rows,),
    threshold (layers,), max_age, pool, vote; conditional, unconditional, guidance, uniform, inverse_temperature,
    top_k, top_p.
    Outputs, layers stacked over rows: code, logits (clips, codes), k, v (layers * rows, kv_heads, head_dim),
    mlp_output bfloat16 (layers * rows, hidden), tas int64 and replay bool (layers * rows,).
    With a depth transformer also input codes int64 (rows, codes of a position), which a row reads unless they are -1,
    and output hidden (rows, hidden), the input of ``lower_depth``, in place of code, logits and all that samples.
    With the criterion ``mlp-input``, input mlp_input_cache uint8 (layers * rows, hidden) in place of slot_before, and
    output mlp_input, the same of what mlp_output was computed from; tas is the score of ``InputSimilarity``.
    """
    if tas_query not in ("post_rope", "pre_rope"):
        raise ValueError(f"tas_query {tas_query!r}; expected post_rope or pre_rope")
    if criterion not in CRITERIA:
        raise ValueError(f"criterion {criterion!r}; expected one of {', '.join(CRITERIA)}")
    if tas_heads not in TAS_HEADS:
        raise ValueError(f"tas_heads {tas_heads!r}; expected one of {', '.join(TAS_HEADS)}")
    step = _Step(config, layout, stored, weight_file, tas_query, depth, criterion, tas_heads)
    return step.model(step.build(), "decode_step", step.functions)


class _Step(GraphBuilder):
    def __init__(
        self,
        config: BackboneConfig,
        layout: FrameLayout,
        stored: dict[str, StoredTensor],
        weight_file: str,
        tas_query: str,
        depth: DepthConfig | None,
        criterion: str,
        tas_heads: str,
    ) -> None:
        super().__init__(stored, weight_file)
        self.config, self.depth, self.codes = config, depth, layout.codes
        self.by_tas, self.pre = criterion == "tas", criterion == "tas" and tas_query == "pre_rope"
        self.forms = {name: self.form(f"layers.0.{name}", self._inputs_of(name)) for name in LINEARS}
        outside = [f"projector.{index}" for index in range(depth.projector_layers)] if depth else ["head"]
        self.forms |= {name: self.form(name, self._inputs_of(name)) for name in outside}
        self.functions = define_functions(
            config,
            self.codes,
            self.forms,
            pre_rope=self.pre,
            tas_heads=tas_heads,
            depth=depth,
            criterion=criterion,
        )

    def build(self) -> list[ir.Value]:
        op, config = self.op, self.config
        tokens, position = self.input("tokens", D.INT64, "rows"), self.input("position", D.INT64, "rows")
        x = op.cast(op("Gather", self.weight("embedding"), tokens, axis=0), D.FLOAT)
        if self.depth is not None:
            x = self._or_codes(x)
        cos = op("Gather", self.weight("rotary.cos"), position, axis=0)
        sin = op("Gather", self.weight("rotary.sin"), position, axis=0)
        self.turn = (cos, sin)
        self.mask = self.input("mask", D.INT32, "rows", "slots")
        self.replay_inputs = self._replay_inputs()
        per_layer = []
        for layer in range(config.layers):
            x, made = self._layer(layer, x)
            per_layer.append(made)
        names = {"k": D.UINT8, "v": D.UINT8, "mlp_output": D.BFLOAT16, "tas": D.INT64, "replay": D.BOOL}
        shapes = {
            "k": ("stacked", config.kv_heads, config.head_dim),
            "v": ("stacked", config.kv_heads, config.head_dim),
            "mlp_output": ("stacked", config.hidden),
            "tas": ("stacked",),
            "replay": ("stacked",),
        }
        if not self.by_tas:
            names["mlp_input"], shapes["mlp_input"] = D.UINT8, ("stacked", config.hidden)
        stacks = [
            self.output(op("Concat", *parts, axis=0), name, names[name], *shapes[name])
            for name, parts in zip(names, zip(*per_layer, strict=True), strict=True)
        ]
        if self.depth is not None:
            return [self.output(op("Identity", x), "hidden", D.FLOAT, "rows", config.hidden), *stacks]
        return [*self._sampled(x), *stacks]

    def _or_codes(self, embedded: ir.Value) -> ir.Value:
        """The embedded token, or the projected codes of the rows that have some."""
        op, depth = self.op, self.depth
        codes = self.input("codes", D.INT64, "rows", depth.codes_per_position)
        embed = lambda code, index: op.call(
            "CodeEmbedding", code, op.constant(index), self.weight("depth.codebook"), name=f"CodeEmbedding.{index}"
        )
        x = embed_codes(op, op("Max", codes, np.int64(0)), embed, depth)
        for index in range(depth.projector_layers):
            name = f"projector.{index}"
            if index:
                x = op.call("GELU", x, self.weight("table.phi"), name=f"{name}.GELU")
            quantized = op.call("QuantizeRows", x, outputs=2, name=f"{name}.QuantizeRows")
            x = op.call(self.forms[name].function, *quantized, *self._linear(name, name), name=name)
        first = op("Gather", codes, np.array([0]), axis=1)
        return op("Where", op("Equal", first, np.int64(TEXT)), embedded, x)

    def _layer(self, index: int, x: ir.Value) -> tuple[ir.Value, tuple[ir.Value, ...]]:
        op, name = self.op, f"layers.{index}"
        weight = lambda part: self.weight(f"{name}.{part}")
        call = lambda function, *inputs, outputs=1: op.call(
            function, *inputs, outputs=outputs, name=f"{name}.{function}"
        )
        linear = lambda part, x: op.call(
            self.forms[part].function, *x, *self._linear(f"{name}.{part}", part), name=f"{name}.{part}"
        )
        k_cache, v_cache = (self._cache(f"{part}_cache.{index}") for part in ("k", "v"))
        normed = call("RMSNorm", x, weight("attention_gain"), outputs=2)
        qkv = linear("qkv", normed)
        parts = call("RotaryEmbedding", qkv, *self.turn, weight("head_scale"), outputs=4 if self.pre else 3)
        q, k, v = parts[:3]
        threshold, age, cached, *before = (values[index] for values in self.replay_inputs)
        decided = lambda score: call(
            "ReplayDecision", score, threshold, self.eligible, age, self.max_age, self.pool, self.vote
        )
        if self.by_tas:
            query = parts[-1] if self.pre else q
            score = call("TemporalAttentionScore", query, k_cache, self.slot_before, weight("tas_multiplier"))
            replay = decided(score)
        tables = [self.weight(f"table.attention{part}") for part in ("", ".high", ".low")]
        mixed = call("Attention", q, k, v, k_cache, v_cache, self.mask, weight("exponent"), weight("v_scale"), *tables)
        quantized = call("QuantizeRows", mixed, outputs=2)
        x = op("Add", x, linear("output", quantized))
        mlp_weights = [*self._linear(f"{name}.gate_up", "gate_up"), *self._linear(f"{name}.down", "down")]
        if self.by_tas:
            operands, kept = (x, replay, cached, weight("mlp_gain")), ()
        else:
            normed = op.call("RMSNorm", x, weight("mlp_gain"), outputs=2, name=f"{name}.ReplayMLP.norm")
            score = call("InputSimilarity", normed[0], *before)
            replay = decided(score)
            operands, kept = (*normed, replay, cached), (op("Where", op.unsqueeze(replay, -1), *before, normed[0]),)
        used, to_cache = call("ReplayMLP", *operands, self.weight("table.sigmoid"), *mlp_weights, outputs=2)
        return op("Add", x, used), (k, v, to_cache, score, replay, *kept)

    def _sampled(self, x: ir.Value) -> tuple[ir.Value, ir.Value]:
        op = self.op
        normed = op.call("RMSNorm", x, self.weight("final_gain"), outputs=2, name="final.RMSNorm")
        head = op.call(self.forms["head"].function, *normed, *self._linear("head", "head"), name="head")
        rows = (self.input("conditional", D.INT64, "clips"), self.input("unconditional", D.INT64, "clips"))
        logits = guided_logits(op, head, *rows, self.input("guidance", D.FLOAT))
        code = op.call(
            "Sample",
            logits,
            self.input("uniform", D.INT64, "clips"),
            self.input("inverse_temperature", D.FLOAT),
            self.input("top_k", D.INT64),
            self.input("top_p", D.INT64),
            self.weight("table.sample"),
            name="sample",
        )
        logits = self.output(logits, "logits", D.FLOAT, "clips", self.codes)
        return self.output(code, "code", D.INT64, "clips"), logits

    def _replay_inputs(self) -> tuple[tuple[ir.Value, ...], ...]:
        """Per-layer threshold (1,), age (rows,), cached MLP output (rows, hidden), and input if that decides."""
        op, layers = self.op, self.config.layers
        if self.by_tas:
            self.slot_before = self.input("slot_before", D.INT64)
        self.eligible = self.input("eligible", D.BOOL, "rows")
        self.max_age = self.input("max_age", D.INT32)
        self.pool = self.input("pool", D.INT64, "rows", "rows")
        self.vote = self.input("vote", D.INT64, "rows", "rows")
        stacked = [
            self.input("threshold", D.INT64, layers),
            self.input("age", D.INT32, "stacked"),
            self.input("replay_cache", D.BFLOAT16, "stacked", self.config.hidden),
        ]
        if not self.by_tas:
            stacked.append(self.input("mlp_input_cache", D.UINT8, "stacked", self.config.hidden))
        if layers == 1:
            return tuple((value,) for value in stacked)
        return tuple(op("Split", value, outputs=layers, axis=0, num_outputs=layers) for value in stacked)

    def _linear(self, prefix: str, name: str) -> list[ir.Value]:
        return self.linear_weights(prefix, self._inputs_of(name), self.forms[name])

    def _inputs_of(self, name: str) -> int:
        config = self.config
        if name == "projector.0":
            return self.depth.code_dim
        return {"output": config.heads * config.head_dim, "down": config.mlp}.get(name, config.hidden)

    def _cache(self, name: str) -> ir.Value:
        return self.input(name, D.UINT8, "rows", self.config.kv_heads, "slots", self.config.head_dim)
