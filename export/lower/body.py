"""A function body or graph under construction: calling it appends an operator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from onnx_ir.tape import Tape

__all__ = ["DOMAIN", "IR_VERSION", "OPSET", "Body", "Library"]

DOMAIN = "ai.fastcar"
OPSET = 21  # the first with Cast from int4
IR_VERSION = 10

Operand = ir.Value | np.ndarray | np.generic


class Body:
    """``op("Add", x, y)`` appends a node and returns its output; NumPy operands become constants.

    ``prefix``: of the names of a subgraph's nodes, which the graph around it must not have.
    """

    def __init__(self, prefix: str = "") -> None:
        self.tape = Tape()
        self.prefix = prefix
        self._serial = 0

    def __call__(self, op: str, *inputs: Operand | None, outputs: int = 1, **attributes: Any) -> Any:
        values = [self._value(x) for x in inputs]
        name = f"{self.prefix}{op}_{self._next()}"
        return self._append(op, values, outputs, "", name, attributes)

    def call(self, function: str, *inputs: ir.Value, outputs: int = 1, name: str) -> Any:
        """Append a call of a model-local function under the given node name."""
        return self._append(function, list(inputs), outputs, DOMAIN, name, {})

    def reshape(self, x: ir.Value, *shape: int) -> ir.Value:
        return self("Reshape", x, np.array(shape, np.int64))

    def cast(self, x: ir.Value, to: ir.DataType) -> ir.Value:
        return self("Cast", x, to=int(to))

    def reduce(self, kind: str, x: ir.Value, axis: int, keepdims: bool = True) -> ir.Value:
        return self(f"Reduce{kind}", x, np.array([axis], np.int64), keepdims=int(keepdims))

    def unsqueeze(self, x: ir.Value, *axes: int) -> ir.Value:
        return self("Unsqueeze", x, np.array(axes, np.int64))

    def lookup(self, table: ir.Value, index: ir.Value, shape: Operand) -> ir.Value:
        """table[index] for a flat table; GatherElements because onnxruntime's Gather is 6 x slower on scalars."""
        flat = self("GatherElements", table, self.reshape(index, -1), axis=0)
        return self("Reshape", flat, shape)

    def constant(self, value: np.ndarray | np.generic) -> ir.Value:
        name = f"{self.prefix}constant_{self._next()}"
        return self._append("Constant", [], 1, "", name, {"value": ir.tensor(np.asarray(value), name=name)})

    def _append(
        self, op: str, values: list[ir.Value | None], outputs: int, domain: str, name: str, attributes: dict[str, Any]
    ) -> Any:
        made = self.tape.op_multi_out(op, values, attributes or None, num_outputs=outputs, domain=domain, name=name)
        for index, value in enumerate(made):
            value.name = f"{name}.{index}"
        return made[0] if outputs == 1 else tuple(made)

    def _value(self, operand: Operand | None) -> ir.Value | None:
        return operand if operand is None or isinstance(operand, ir.Value) else self.constant(operand)

    def _next(self) -> int:
        self._serial += 1
        return self._serial


Emitter = Callable[..., Any]


class Library:
    """The model-local functions of one model; each is emitted once and called in every layer."""

    def __init__(self) -> None:
        self.functions: dict[str, ir.Function] = {}

    def define(self, name: str, emit: Emitter, inputs: Sequence[str], outputs: Sequence[str], doc: str) -> None:
        """``emit(body, *inputs)`` returns the outputs; a second definition under one name is a ValueError."""
        if name in self.functions:
            raise ValueError(f"function {name} is defined already")
        body = Body()
        arguments = [ir.Value(name=x) for x in inputs]
        results = emit(body, *arguments)
        results = results if isinstance(results, tuple) else (results,)
        if len(results) != len(outputs):
            raise ValueError(f"{name} emits {len(results)} outputs; expected {len(outputs)}")
        for value, output in zip(results, outputs, strict=True):
            value.name = output
        graph = ir.Graph(arguments, results, nodes=body.tape.nodes, opset_imports={"": OPSET}, name=name)
        graph.doc_string = doc
        self.functions[name] = ir.Function(DOMAIN, name, graph=graph, attributes=[])
