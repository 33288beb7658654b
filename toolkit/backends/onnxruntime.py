"""onnxruntime as a back end: the graph's inputs and outputs are bound to the state's own memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..config import BackboneConfig, FrameLayout
from ..errors import UsageError
from .protocol import SteppingBackend

__all__ = ["OnnxRuntimeBackend", "open_session"]

BFLOAT16 = 16  # onnx.TensorProto.BFLOAT16: NumPy has no such type, its bits travel as uint16
CAST_AS = {"replay_cache": BFLOAT16, "mlp_output": BFLOAT16}


def open_session(path: Path, threads: int | None = None, optimize: bool = True):
    """A CPU session that computes each operator as written.

    Basic optimization only folds constants and removes no-ops; the levels above fuse scale multiplications and so
    change the order of roundings. UsageError if onnxruntime is not installed.
    """
    try:
        import onnxruntime
    except ImportError as error:
        raise UsageError(
            "--backend", "onnxruntime", "the package onnxruntime to be installed", "pip install 'fastcar-edge[emulate]'"
        ) from error
    options = onnxruntime.SessionOptions()
    level = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_BASIC if optimize else level.ORT_DISABLE_ALL
    options.intra_op_num_threads = threads or 0
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


class OnnxRuntimeBackend(SteppingBackend):
    """Runs ``backbone.onnx``; ``threads`` None leaves their number to onnxruntime. Threads do not change a bit."""

    name = "onnxruntime"

    def __init__(
        self, path: Path, config: BackboneConfig, layout: FrameLayout, threads: int | None = None, optimize: bool = True
    ) -> None:
        super().__init__(config, layout)
        self.session = open_session(path, threads, optimize)

    def caches_replaced(self) -> None:
        if self.state.position == 0:
            self._bind_run()
        for layer in range(self.config.layers):
            self._bind("bind_input", f"k_cache.{layer}", self.state.k_cache[layer])
            self._bind("bind_input", f"v_cache.{layer}", self.state.v_cache[layer])
        self._bind("bind_input", "mask", self.state.mask)

    def run_step(self) -> dict[str, np.ndarray]:
        self.session.run_with_iobinding(self.binding)
        return self.outputs

    def _bind_run(self) -> None:
        self.binding = self.session.io_binding()
        for name, value in self.inputs.items():
            self._bind("bind_input", name, value)
        config, stacked = self.config, self.config.layers * self.state.rows
        heads = (stacked, config.kv_heads, config.head_dim)
        self.outputs = {
            "code": np.zeros(self.clips, np.int64),
            "logits": np.zeros((self.clips, self.layout.codes), np.float32),
            "k": np.zeros(heads, np.uint8),
            "v": np.zeros(heads, np.uint8),
            "mlp_output": np.zeros((stacked, config.hidden), np.uint16),
            "tas": np.zeros(stacked, np.int64),
            "replay": np.zeros(stacked, np.bool_),
        }
        for name, value in self.outputs.items():
            self._bind("bind_output", name, value)

    def _bind(self, how: str, name: str, value: np.ndarray) -> None:
        bind = getattr(self.binding, how)
        bind(name, "cpu", 0, CAST_AS.get(name, value.dtype), list(value.shape), value.ctypes.data)
