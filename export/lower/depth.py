"""The depth transformer as an ONNX graph of its own: a loop over the residual codes of one position.

Its body is there once whatever the number of codes, so a library keeps (and unpacks) every weight once.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ...toolkit.bundle.tensor_file import StoredTensor
from ...toolkit.config import BackboneConfig, DepthConfig, FrameLayout
from ...toolkit.numerics.attention import MASKED
from ...toolkit.numerics.depth import TEXT
from .body import DOMAIN, OPSET, Body
from .builder import GraphBuilder
from .depth_functions import define_depth_functions
from .linear import ZERO_POINT
from .sampling import guided_logits

__all__ = ["lower_depth"]

D = ir.DataType
TABLES = ("table.attention", "table.attention.high", "table.attention.low")


def lower_depth(
    backbone: BackboneConfig,
    config: DepthConfig,
    layout: FrameLayout,
    stored: dict[str, StoredTensor],
    weight_file: str,
) -> ir.Model:
    """The graph over the tensors of ``weight_file``; numerics in toolkit/numerics/depth.py.

    Inputs: hidden float32 (rows, backbone hidden) before the final norm; clip int64 (rows,), the clip of each row;
    conditional, unconditional int64 (clips,), guidance; uniform and given int64 (clips, codes of a position);
    inverse_temperature, top_k, top_p.
    Outputs: code int64 (clips, codes of a position), logits float32 (clips, codes of a position, codes).
    """
    depth = _Depth(backbone, config, layout, stored, weight_file)
    return depth.model(depth.build(), "depth", depth.functions)


class _Depth(GraphBuilder):
    def __init__(
        self,
        backbone: BackboneConfig,
        config: DepthConfig,
        layout: FrameLayout,
        stored: dict[str, StoredTensor],
        weight_file: str,
    ) -> None:
        super().__init__(stored, weight_file)
        self.backbone, self.config, self.codes = backbone, config, layout.codes
        widths = {"in_mlp_1": config.code_dim, "in_mlp_2": backbone.hidden, "classifier": config.hidden}
        for layer in range(config.layers):
            parts = {"qkv": config.hidden, "output": config.hidden, "fc1": config.hidden, "fc2": config.mlp}
            widths |= {f"blocks.{layer}.{part}": width for part, width in parts.items()}
        self.widths = {f"depth.{name}": width for name, width in widths.items()}
        self.forms = {name: self.form(name, width) for name, width in self.widths.items()}
        self.functions = define_depth_functions(backbone, config, self.codes, list(self.forms.values()))

    def build(self) -> list[ir.Value]:
        op, config, steps = self.op, self.config, self.config.codes_per_position
        hidden = self.input("hidden", D.FLOAT, "rows", self.backbone.hidden)
        self.input("clip", D.INT64, "rows")
        self.input("conditional", D.INT64, "clips")
        self.input("unconditional", D.INT64, "clips")
        self.input("guidance", D.FLOAT)
        self.input("uniform", D.INT64, "clips", steps)
        self.input("given", D.INT64, "clips", steps)
        self.input("inverse_temperature", D.FLOAT)
        self.input("top_k", D.INT64)
        self.input("top_p", D.INT64)
        normed = op.call("RMSNorm", hidden, self.weight("final_gain"), outputs=2, name="final.RMSNorm")
        x = self._linear(op, "depth.in_mlp_2", normed)
        self.rows = op("Shape", hidden, start=0, end=1)
        total = op("ConstantOfShape", op("Concat", self.rows, np.array([config.code_dim]), axis=0))
        shape = [np.array([config.layers]), self.rows, np.array([config.heads, steps, config.head_dim])]
        zero = ir.tensor(np.array([ZERO_POINT]), name="zero")
        cache = op("ConstantOfShape", op("Concat", *shape, axis=0), value=zero)
        body = self._body()
        made = op("Loop", np.int64(steps), np.bool_(True), x, total, cache, cache, outputs=6, body=body)
        code, logits = op("Transpose", made[4], perm=[1, 0]), op("Transpose", made[5], perm=[1, 0, 2])
        return [
            self.output(code, "code", D.INT64, "clips", steps),
            self.output(logits, "logits", D.FLOAT, "clips", steps, self.codes),
        ]

    def _body(self) -> ir.Graph:
        """One residual code: carries the input of the next, the embeddings' sum and the caches; gives code, logits."""
        op, config = Body(prefix="code."), self.config
        names = {"index": D.INT64, "go_on": D.BOOL, "x": D.FLOAT, "total": D.FLOAT, "k": D.UINT8, "v": D.UINT8}
        given = {name: ir.Value(name=f"code.{name}", type=ir.TensorType(dtype)) for name, dtype in names.items()}
        index, go_on, x, total, *caches = given.values()
        index.shape = go_on.shape = ir.Shape([])
        x.shape, total.shape = ir.Shape(["rows", config.hidden]), ir.Shape(["rows", config.code_dim])
        for cache in caches:
            heads = [config.heads, config.codes_per_position, config.head_dim]
            cache.shape = ir.Shape([config.layers, "rows", *heads])
        logits, caches = self._logits(op, index, x, caches)
        code = self._code(op, index, logits)
        of_row = op("Gather", code, self.inputs["clip"], axis=0)
        embedded = op.call("CodeEmbedding", of_row, index, self.weight("depth.codebook"), name="code.CodeEmbedding")
        total = op("Add", total, embedded)
        x = self._linear(op, "depth.in_mlp_1", op.call("QuantizeRows", total, outputs=2, name="code.QuantizeRows"))
        results = [op("Identity", go_on), x, total, *caches, op("Identity", code), op("Identity", logits)]
        types = [D.BOOL, D.FLOAT, D.FLOAT, D.UINT8, D.UINT8, D.INT64, D.FLOAT]
        for value, dtype in zip(results, types, strict=True):
            value.type = ir.TensorType(dtype)
        opsets = {"": OPSET, DOMAIN: 1}
        return ir.Graph(list(given.values()), results, nodes=op.tape.nodes, opset_imports=opsets, name="one_code")

    def _logits(
        self, op: Body, index: ir.Value, x: ir.Value, caches: list[ir.Value]
    ) -> tuple[ir.Value, list[ir.Value]]:
        """Guided logits (clips, codes), and the caches with k and v of this code."""
        config = self.config
        slots = np.arange(config.codes_per_position, dtype=np.int64)
        mask = op("Where", op("Less", slots, index), np.int32(0), MASKED)
        mask = op("Expand", mask, op("Concat", self.rows, np.array([slots.size]), axis=0))
        split = [self._by_layer(op, cache) for cache in caches]
        x = op("Add", x, op("Gather", self.weight("depth.pos_emb"), index, axis=0))
        made = []
        for layer in range(config.layers):
            x, k, v = self._block(op, layer, x, split[0][layer], split[1][layer], mask)
            made.append([op.unsqueeze(part, 0, 3) for part in (k, v)])
        own = op("Equal", slots[:, None], index)
        new = [op("Concat", *parts, axis=0) if len(parts) > 1 else parts[0] for parts in zip(*made, strict=True)]
        caches = [op("Where", own, values, cache) for values, cache in zip(new, caches, strict=True)]
        gain, bias = (self.weight(f"depth.classifier_{part}") for part in ("gain", "bias"))
        normed = op.call("LayerNorm", x, gain, bias, outputs=2, name="code.LayerNorm")
        rows = (self.inputs[name] for name in ("conditional", "unconditional", "guidance"))
        return guided_logits(op, self._linear(op, "depth.classifier", normed), *rows), caches

    def _block(
        self, op: Body, layer: int, x: ir.Value, k_cache: ir.Value, v_cache: ir.Value, mask: ir.Value
    ) -> tuple[ir.Value, ir.Value, ir.Value]:
        name = f"depth.blocks.{layer}"
        weight = lambda part: self.weight(f"{name}.{part}")
        call = lambda function, *inputs, outputs=1, part="": op.call(
            function, *inputs, outputs=outputs, name=f"{name}.{function}{part}"
        )
        normed = call("LayerNorm", x, weight("attention_gain"), weight("attention_bias"), outputs=2, part=".attention")
        qkv = self._linear(op, f"{name}.qkv", normed)
        q, k, v = call("QuantizeHeads", qkv, weight("head_scale"), outputs=3)
        tables = [self.weight(table) for table in TABLES]
        mixed = call("Attention", q, k, v, k_cache, v_cache, mask, weight("exponent"), weight("v_scale"), *tables)
        mixed = call("QuantizeRows", mixed, outputs=2, part=".attention")
        x = op("Add", x, self._linear(op, f"{name}.output", mixed))
        normed = call("LayerNorm", x, weight("mlp_gain"), weight("mlp_bias"), outputs=2, part=".mlp")
        activated = call("GELU", self._linear(op, f"{name}.fc1", normed), self.weight("table.phi"))
        hidden = call("QuantizeRows", activated, outputs=2, part=".mlp")
        return op("Add", x, self._linear(op, f"{name}.fc2", hidden)), k, v

    def _code(self, op: Body, index: ir.Value, logits: ir.Value) -> ir.Value:
        """(clips,): the code given, or sampled where none is."""
        uniform = op("Gather", self.inputs["uniform"], index, axis=1)
        settings = [self.inputs[name] for name in ("inverse_temperature", "top_k", "top_p")]
        sampled = op.call("Sample", logits, uniform, *settings, self.weight("table.sample"), name="code.Sample")
        given = op("Gather", self.inputs["given"], index, axis=1)
        return op("Where", op("Equal", given, np.int64(TEXT)), sampled, given)

    def _by_layer(self, op: Body, cache: ir.Value) -> list[ir.Value]:
        return [op("Gather", cache, np.int64(layer), axis=0) for layer in range(self.config.layers)]

    def _linear(self, op: Body, name: str, x: tuple[ir.Value, ir.Value]) -> ir.Value:
        form = self.forms[name]
        return op.call(form.function, *x, *self.linear_weights(name, self.widths[name], form), name=name)
