"""A graph over the tensors of a weight file: inputs, outputs and external weights by name."""

from __future__ import annotations

import onnx_ir as ir

from ...toolkit.bundle.tensor_file import StoredTensor
from .body import DOMAIN, IR_VERSION, OPSET, Body
from .functions import LinearForm

__all__ = ["GraphBuilder"]

D = ir.DataType
EXTERNAL = {"U8": D.UINT8, "F16": D.FLOAT16, "F32": D.FLOAT, "I32": D.INT32, "I64": D.INT64}


class GraphBuilder:
    """``op`` appends to the graph; weights become initializers whose data stays in ``weight_file``."""

    def __init__(self, stored: dict[str, StoredTensor], weight_file: str) -> None:
        self.stored, self.weight_file = stored, weight_file
        self.op = Body()
        self.inputs: dict[str, ir.Value] = {}
        self.weights: dict[str, ir.Value] = {}

    def input(self, name: str, dtype: ir.DataType, *shape: int | str) -> ir.Value:
        self.inputs[name] = ir.Value(name=name, shape=ir.Shape(shape), type=ir.TensorType(dtype))
        return self.inputs[name]

    @staticmethod
    def output(value: ir.Value, name: str, dtype: ir.DataType, *shape: int | str) -> ir.Value:
        value.name, value.shape, value.type = name, ir.Shape(shape), ir.TensorType(dtype)
        return value

    def weight(self, name: str, int4_shape: tuple[int, int] | None = None) -> ir.Value:
        if name not in self.weights:
            stored = self.stored[name]
            dtype = D.INT4 if int4_shape else EXTERNAL[stored.dtype]
            shape = ir.Shape(int4_shape or stored.shape)
            tensor = ir.ExternalTensor(self.weight_file, stored.offset, stored.length, dtype, shape=shape, name=name)
            self.weights[name] = ir.Value(name=name, shape=shape, type=ir.TensorType(dtype), const_value=tensor)
        return self.weights[name]

    def form(self, name: str, inputs: int) -> LinearForm:
        """How the linear layer ``name`` of so many inputs is stored."""
        multiplier = self.stored.get(f"{name}.multiplier")
        group_size = None if multiplier is None else inputs // multiplier.shape[0]
        return LinearForm(group_size, bias=f"{name}.bias" in self.stored)

    def linear_weights(self, name: str, inputs: int, form: LinearForm) -> list[ir.Value]:
        """Its tensors in the order of ``form.parts``."""
        int4 = (inputs, self.stored[f"{name}.scale"].shape[0]) if form.group_size is not None else None
        return [self.weight(f"{name}.{part}", int4 if part == "weight" else None) for part in form.parts]

    def model(self, outputs: list[ir.Value], name: str, functions: dict[str, ir.Function]) -> ir.Model:
        graph = ir.Graph(
            list(self.inputs.values()),
            outputs,
            nodes=self.op.tape.nodes,
            initializers=list(self.weights.values()),
            opset_imports={"": OPSET, DOMAIN: 1},
            name=name,
        )
        return ir.Model(graph, ir_version=IR_VERSION, producer_name="fastcar", functions=list(functions.values()))
