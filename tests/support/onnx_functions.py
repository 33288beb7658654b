"""Runs one function of a lowered model alone through onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
from onnx import TensorProto, helper

from fastcar.export.lower.body import DOMAIN, IR_VERSION, OPSET, Emitter, Library

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


class Int4:
    """A constant: ``packed`` bytes of int4 values of ``shape``."""

    def __init__(self, packed: np.ndarray, shape: tuple[int, ...]) -> None:
        self.packed, self.shape = packed, shape

    def tensor(self, name: str) -> onnx.TensorProto:
        return helper.make_tensor(name, TensorProto.INT4, self.shape, self.packed.tobytes(), raw=True)


def element_type(array: np.ndarray) -> int:
    return helper.np_dtype_to_tensor_dtype(array.dtype)


def emitted(name: str, emit: Emitter, inputs: Sequence[str], outputs: Sequence[str]) -> onnx.FunctionProto:
    """One function that ``emit`` writes, whether or not a model calls it."""
    library = Library()
    library.define(name, emit, inputs, outputs, "")
    return ir.serde.serialize_function(library.functions[name])


def function_model(
    function: onnx.FunctionProto,
    inputs: Mapping[str, np.ndarray | Int4],
    outputs: Mapping[str, np.ndarray],
    extra: Sequence[onnx.ValueInfoProto] = (),
    inline: bool = False,
) -> onnx.ModelProto:
    """A graph that calls the function, or with ``inline`` is its body, where ``extra`` inner values can be outputs."""
    info = lambda name, x: helper.make_tensor_value_info(name, element_type(x), x.shape)
    given = [info(name, x) for name, x in inputs.items() if not isinstance(x, Int4)]
    constants = [x.tensor(name) for name, x in inputs.items() if isinstance(x, Int4)]
    made = [info(name, x) for name, x in outputs.items()]
    call = helper.make_node(function.name, list(function.input), list(function.output), domain=DOMAIN)
    nodes = list(function.node) if inline else [call]
    graph = helper.make_graph(nodes, "alone", given, [*made, *extra], initializer=constants)
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(DOMAIN, 1)]
    functions = [] if inline else [function]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, functions=functions)
    onnx.checker.check_model(model, full_check=not inline)
    return model


def session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def run_function(
    function: onnx.FunctionProto, inputs: Mapping[str, np.ndarray | Int4], like: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Outputs by name; ``like`` gives their types and shapes."""
    assert list(inputs) == list(function.input) and list(like) == list(function.output)
    running = session(function_model(function, inputs, like))
    binding = running.io_binding()
    outputs = {name: np.zeros_like(x) for name, x in like.items()}
    kept = {name: np.asarray(x, order="C") for name, x in inputs.items() if not isinstance(x, Int4)}
    for bind, arrays in ((binding.bind_input, kept), (binding.bind_output, outputs)):
        for name, x in arrays.items():
            bind(name, "cpu", 0, element_type(x) if x.dtype == BFLOAT16 else x.dtype, list(x.shape), x.ctypes.data)
    running.run_with_iobinding(binding)
    return outputs


def assert_function(
    function: onnx.FunctionProto, inputs: Mapping[str, np.ndarray | Int4], expected: Mapping[str, np.ndarray]
) -> None:
    """The function computes exactly these bits."""
    for name, found in run_function(function, inputs, expected).items():
        a, b = (np.ascontiguousarray(x) for x in (found, expected[name]))
        differ = np.argwhere((a.view(np.uint8) != b.view(np.uint8)).reshape(*a.shape, -1).any(axis=-1))
        where = tuple(differ[0]) if len(differ) else ()
        difference = f"{name}{list(where)} is {a[where]}, expected {b[where]}; {len(differ)} differ"
        assert not len(differ), f"{function.name}: {difference}"
