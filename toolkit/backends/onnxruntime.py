"""onnxruntime as a back end: the graph's inputs and outputs are bound to the state's own memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..bundle.bundle import DEPTH
from ..config import BackboneConfig, DepthConfig, FrameLayout
from ..errors import UsageError
from .protocol import SteppingBackend

__all__ = ["OnnxRuntimeBackend", "open_session"]

BFLOAT16 = 16  # onnx.TensorProto.BFLOAT16: NumPy has no such type, its bits travel as uint16
CAST_AS = {"replay_cache": BFLOAT16, "mlp_output": BFLOAT16}


def open_session(path: Path, threads: int | None = None, optimize: bool = True, profile: Path | None = None):
    """A CPU session that computes each operator as written.

    Basic optimization only folds constants and removes no-ops; the levels above fuse scale multiplications and so
    change the order of roundings. ``profile``: a folder for a trace. UsageError if onnxruntime is not installed.
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
    if profile:
        options.enable_profiling, options.profile_file_prefix = True, str(profile / path.stem)
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


class OnnxRuntimeBackend(SteppingBackend):
    """Runs ``backbone.onnx``, and ``depth.onnx`` in the same folder if there is a depth transformer.

    ``threads`` None leaves their number to onnxruntime. Threads do not change a bit. ``profile``: a folder for traces.
    """

    name = "onnxruntime"

    def __init__(
        self,
        path: Path,
        config: BackboneConfig,
        layout: FrameLayout,
        threads: int | None = None,
        optimize: bool = True,
        depth: DepthConfig | None = None,
        profile: Path | None = None,
        criterion: str = "tas",
    ) -> None:
        super().__init__(config, layout, depth, criterion)
        self.session = open_session(path, threads, optimize, profile)
        if depth is not None:
            self.depth_session = open_session(path.with_name(DEPTH), threads, optimize, profile)

    def finish_profile(self) -> list[Path]:
        """The traces (JSON) of the backbone and of the depth transformer, if there is one; once, with ``profile``."""
        sessions = [self.session, *([self.depth_session] if self.depth else [])]
        return [Path(session.end_profiling()) for session in sessions]

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

    def run_depth(self, hidden: np.ndarray) -> dict[str, np.ndarray]:
        names = ["code", "logits"]
        made = self.depth_session.run(names, {"hidden": hidden, **self.sampling})
        return dict(zip(names, made, strict=True))

    def _bind_run(self) -> None:
        self.binding = self.session.io_binding()
        for name, value in self.inputs.items():
            self._bind("bind_input", name, value)
        config, stacked = self.config, self.config.layers * self.state.rows
        heads = (stacked, config.kv_heads, config.head_dim)
        self.outputs = {
            **self._predicted(),
            "k": np.zeros(heads, np.uint8),
            "v": np.zeros(heads, np.uint8),
            "mlp_output": np.zeros((stacked, config.hidden), np.uint16),
            "tas": np.zeros(stacked, np.int64),
            "replay": np.zeros(stacked, np.bool_),
        }
        if self.criterion == "mlp-input":
            self.outputs["mlp_input"] = np.zeros((stacked, config.hidden), np.uint8)
        for name, value in self.outputs.items():
            self._bind("bind_output", name, value)

    def _predicted(self) -> dict[str, np.ndarray]:
        """Room for the codes that the backbone's graph predicts, or for what the depth transformer's makes them of."""
        if self.depth is not None:
            return {"hidden": np.zeros((self.state.rows, self.config.hidden), np.float32)}
        return {
            "code": np.zeros(self.clips, np.int64),
            "logits": np.zeros((self.clips, self.layout.codes), np.float32),
        }

    def _bind(self, how: str, name: str, value: np.ndarray) -> None:
        bind = getattr(self.binding, how)
        bind(name, "cpu", 0, CAST_AS.get(name, value.dtype), list(value.shape), value.ctypes.data)
