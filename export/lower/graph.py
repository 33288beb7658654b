"""One decode step as an ONNX graph: a pure function of tokens, caches and settings."""

from __future__ import annotations

import ml_dtypes  # noqa: F401  (registers bfloat16 for onnx-ir)
import onnx_ir as ir

from ...toolkit.bundle.tensor_file import StoredTensor
from ...toolkit.config import BackboneConfig, FrameLayout
from .body import DOMAIN, IR_VERSION, OPSET, Body
from .functions import LinearForm, define_functions
from .sampling import guided_logits

__all__ = ["lower_backbone"]

D = ir.DataType
EXTERNAL = {"U8": D.UINT8, "F16": D.FLOAT16, "F32": D.FLOAT, "I32": D.INT32, "I64": D.INT64}
LINEARS = ("qkv", "output", "gate_up", "down", "head")


def lower_backbone(
    config: BackboneConfig,
    layout: FrameLayout,
    stored: dict[str, StoredTensor],
    weight_file: str,
    tas_query: str = "post_rope",
) -> ir.Model:
    """The step graph over the tensors of ``weight_file``; ValueError for an unknown ``tas_query``.

    Inputs: tokens, position (rows,); k_cache.L, v_cache.L uint8 (rows, kv_heads, slots, head_dim); mask int32
    (rows, slots); slot_before, eligible, replay_cache bfloat16 (layers * rows, hidden), age (layers * rows,),
    threshold (layers,), max_age, pool, vote; conditional, unconditional, guidance, uniform, inverse_temperature,
    top_k, top_p.
    Outputs, layers stacked over rows: code, logits (clips, codes), k, v (layers * rows, kv_heads, head_dim),
    mlp_output bfloat16 (layers * rows, hidden), tas int64 and replay bool (layers * rows,).
    """
    if tas_query not in ("post_rope", "pre_rope"):
        raise ValueError(f"tas_query {tas_query!r}; expected post_rope or pre_rope")
    step = _Step(config, layout, stored, weight_file, tas_query)
    outputs = step.build()
    graph = ir.Graph(
        list(step.inputs.values()),
        outputs,
        nodes=step.op.tape.nodes,
        initializers=list(step.weights.values()),
        opset_imports={"": OPSET, DOMAIN: 1},
        name="decode_step",
    )
    return ir.Model(graph, ir_version=IR_VERSION, producer_name="fastcar", functions=list(step.functions.values()))


class _Step:
    def __init__(
        self,
        config: BackboneConfig,
        layout: FrameLayout,
        stored: dict[str, StoredTensor],
        weight_file: str,
        tas_query: str,
    ) -> None:
        self.config, self.stored, self.weight_file, self.pre = config, stored, weight_file, tas_query == "pre_rope"
        self.codes = layout.codes
        self.op = Body()
        self.inputs: dict[str, ir.Value] = {}
        self.weights: dict[str, ir.Value] = {}
        self.forms = {name: self._form(name) for name in LINEARS}
        self.functions = define_functions(config, self.codes, self.forms, pre_rope=self.pre)

    def build(self) -> list[ir.Value]:
        op, config = self.op, self.config
        tokens, position = self._input("tokens", D.INT64, "rows"), self._input("position", D.INT64, "rows")
        x = op.cast(op("Gather", self._weight("embedding"), tokens, axis=0), D.FLOAT)
        cos = op("Gather", self._weight("rotary.cos"), position, axis=0)
        sin = op("Gather", self._weight("rotary.sin"), position, axis=0)
        self.turn = (cos, sin)
        self.mask = self._input("mask", D.INT32, "rows", "slots")
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
        stacks = [
            self._output(op("Concat", *parts, axis=0), name, names[name], shapes[name])
            for name, parts in zip(names, zip(*per_layer, strict=True), strict=True)
        ]
        return [*self._sampled(x), *stacks]

    def _layer(self, index: int, x: ir.Value) -> tuple[ir.Value, tuple[ir.Value, ...]]:
        op, name = self.op, f"layers.{index}"
        weight = lambda part: self._weight(f"{name}.{part}")
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
        score = call(
            "TemporalAttentionScore", parts[-1] if self.pre else q, k_cache, self.slot_before, weight("tas_multiplier")
        )
        threshold, age, cached = (values[index] for values in self.replay_inputs)
        replay = call("ReplayDecision", score, threshold, self.eligible, age, self.max_age, self.pool, self.vote)
        tables = [self._weight(f"table.attention{part}") for part in ("", ".high", ".low")]
        mixed = call("Attention", q, k, v, k_cache, v_cache, self.mask, weight("exponent"), weight("v_scale"), *tables)
        quantized = call("QuantizeRows", mixed, outputs=2)
        x = op("Add", x, linear("output", quantized))
        mlp_weights = [*self._linear(f"{name}.gate_up", "gate_up"), *self._linear(f"{name}.down", "down")]
        used, to_cache = call(
            "ReplayMLP", x, replay, cached, weight("mlp_gain"), self._weight("table.sigmoid"), *mlp_weights, outputs=2
        )
        return op("Add", x, used), (k, v, to_cache, score, replay)

    def _sampled(self, x: ir.Value) -> tuple[ir.Value, ir.Value]:
        op = self.op
        normed = op.call("RMSNorm", x, self._weight("final_gain"), outputs=2, name="final.RMSNorm")
        head = op.call(self.forms["head"].function, *normed, *self._linear("head", "head"), name="head")
        rows = (self._input("conditional", D.INT64, "clips"), self._input("unconditional", D.INT64, "clips"))
        logits = guided_logits(op, head, *rows, self._input("guidance", D.FLOAT))
        code = op.call(
            "Sample",
            logits,
            self._input("uniform", D.INT64, "clips"),
            self._input("inverse_temperature", D.FLOAT),
            self._input("top_k", D.INT64),
            self._input("top_p", D.INT64),
            self._weight("table.sample"),
            name="sample",
        )
        logits = self._output(logits, "logits", D.FLOAT, ("clips", self.codes))
        return self._output(code, "code", D.INT64, ("clips",)), logits

    def _replay_inputs(self) -> tuple[tuple[ir.Value, ...], ...]:
        """Per-layer threshold (1,), age (rows,) and cached MLP output (rows, hidden)."""
        op, layers = self.op, self.config.layers
        self.slot_before = self._input("slot_before", D.INT64)
        self.eligible = self._input("eligible", D.BOOL, "rows")
        self.max_age = self._input("max_age", D.INT32)
        self.pool = self._input("pool", D.INT64, "rows", "rows")
        self.vote = self._input("vote", D.INT64, "rows", "rows")
        stacked = (
            self._input("threshold", D.INT64, layers),
            self._input("age", D.INT32, "stacked"),
            self._input("replay_cache", D.BFLOAT16, "stacked", self.config.hidden),
        )
        if layers == 1:
            return tuple((value,) for value in stacked)
        return tuple(op("Split", value, outputs=layers, axis=0, num_outputs=layers) for value in stacked)

    def _form(self, name: str) -> LinearForm:
        prefix = name if name == "head" else f"layers.0.{name}"
        multiplier = self.stored.get(f"{prefix}.multiplier")
        return LinearForm(None if multiplier is None else self._inputs_of(name) // multiplier.shape[0])

    def _inputs_of(self, name: str) -> int:
        config = self.config
        return {"output": config.heads * config.head_dim, "down": config.mlp}.get(name, config.hidden)

    def _linear(self, prefix: str, name: str) -> list[ir.Value]:
        weights = []
        for part in self.forms[name].parts:
            int4 = part == "weight" and self.forms[name].group_size is not None
            outputs = self.stored[f"{prefix}.scale"].shape[0]
            shape = (self._inputs_of(name), outputs) if int4 else None
            weights.append(self._weight(f"{prefix}.{part}", shape))
        return weights

    def _weight(self, name: str, int4_shape: tuple[int, int] | None = None) -> ir.Value:
        if name not in self.weights:
            stored = self.stored[name]
            dtype = D.INT4 if int4_shape else EXTERNAL[stored.dtype]
            shape = ir.Shape(int4_shape or stored.shape)
            tensor = ir.ExternalTensor(self.weight_file, stored.offset, stored.length, dtype, shape=shape, name=name)
            self.weights[name] = ir.Value(name=name, shape=shape, type=ir.TensorType(dtype), const_value=tensor)
        return self.weights[name]

    def _cache(self, name: str) -> ir.Value:
        return self._input(name, D.UINT8, "rows", self.config.kv_heads, "slots", self.config.head_dim)

    def _input(self, name: str, dtype: ir.DataType, *shape: int | str) -> ir.Value:
        self.inputs[name] = ir.Value(name=name, shape=ir.Shape(shape), type=ir.TensorType(dtype))
        return self.inputs[name]

    @staticmethod
    def _output(value: ir.Value, name: str, dtype: ir.DataType, shape: tuple[int | str, ...]) -> ir.Value:
        value.name, value.shape, value.type = name, ir.Shape(shape), ir.TensorType(dtype)
        return value
