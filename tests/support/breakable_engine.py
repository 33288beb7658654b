"""An engine of which one node can be broken: of one layer, at one residual code."""

from __future__ import annotations

import ctypes
from pathlib import Path

from broken_engine import build_mutants
from small_engine import deep_engine

from fastcar.export.overlay.compile import pack_model
from fastcar.hls.library import EngineLibrary
from fastcar.toolkit.backends.csim import CSimBackend
from fastcar.toolkit.bundle.bundle import Bundle
from fastcar.toolkit.selftest import SelfTestReport, self_test

__all__ = ["DECISION", "ENGINE", "GUIDANCE", "MEMORY", "SCORE", "Breakable", "build_breakable", "engine_of"]

ENGINE = deep_engine()
SCORE, DECISION, GUIDANCE, MEMORY = 100, 101, 102, 103  # faults that share an opcode, or are no node's

SWITCH = """namespace fastcar {

extern "C" {
inline int fastcar_faulty_node = 0;
inline int fastcar_faulty_layer = 0;
inline int fastcar_faulty_code = 0;
}
inline int layer_now = 0;
inline int code_now = 0;
inline bool faulty(int node) {
    return node == fastcar_faulty_node && layer_now == fastcar_faulty_layer && code_now == fastcar_faulty_code;
}

using beat_t ="""

NOW = "layer_now = operation.layer; code_now = operation.index; model_ = network_.model_of(operation.opcode);"
STORED = "ResidualSink sink = {x_, (int)model_.hidden"
FAULTS = [
    ("types.h", "namespace fastcar {\n\nusing beat_t =", SWITCH),
    ("executor.h", "model_ = network_.model_of(operation.opcode);", NOW),
    ("executor_layers.h", "from_half(bits);", "from_half(bits ^ (faulty(EMBED) ? 1 : 0));"),
    ("executor_layers.h", "gain_, operation.eps,", "gain_, operation.eps * (faulty(operation.opcode) ? 1e4f : 1.0f),"),
    ("executor_layers.h", "* model_.head_dim), false};", "* model_.head_dim) - faulty(operation.opcode), false};"),
    (
        "executor_layers.h",
        "{x_, (int)model_.hidden, false}",
        "{x_, (int)model_.hidden - faulty(operation.opcode), false}",
    ),
    ("executor_layers.h", "(int)(2 * model_.mlp)}", "(int)(2 * model_.mlp) - (faulty(LINEAR_GATE_UP) ? 2 : 0)}"),
    ("executor_layers.h", "unpack_bfloat16(used, half)", "unpack_bfloat16(used, half ^ (faulty(LINEAR_DOWN) ? 1 : 0))"),
    ("executor_layers.h", "(int)model_.codes, false}", "(int)model_.codes - faulty(operation.opcode), false}"),
    ("executor_attention.h", "heads + kv_heads, model_.head", "heads + kv_heads - faulty(HEADS), model_.head"),
    ("executor_attention.h", "v_scale_[head]", "v_scale_[faulty(padded ? ATTENTION : DEPTH_ATTENTION) ? 0 : head]"),
    ("executor_attention.h", "has_frame_before(model_", f"!faulty({DECISION}) && has_frame_before(model_"),
    ("temporal_attention_score.h", "multiplier[head]", f"(multiplier[head] - faulty({SCORE}))"),
    ("executor_sampling.h", "settings.guidance,", f"settings.guidance + (faulty({GUIDANCE}) ? 1.0f : 0.0f),"),
    ("executor_sampling.h", "uniform & 0xFFFFFFu,", "(uniform ^ (faulty(operation.opcode) ? ~0u : 0u)) & 0xFFFFFFu,"),
    ("executor_depth.h", f"        {STORED}, true}};", f"        {STORED} - faulty(PROJECT), true}};"),
    ("executor_depth.h", "+ gain_[first + lane];", "+ gain_[first + lane] + (faulty(operation.opcode) ? 1.0f : 0.0f);"),
    ("executor_depth.h", "bias_, operation.eps,", "bias_, operation.eps + (faulty(operation.opcode) ? 1.0f : 0.0f),"),
    ("executor_depth.h", "head_scale_, heads, 0,", "head_scale_, heads - faulty(DEPTH_HEADS), 0,"),
    ("executor_depth.h", "{wide_, outputs, true};", "{wide_, outputs - faulty(operation.opcode), true};"),
    ("attention.h", "seen ? att", f"seen || (faulty({MEMORY}) && buffers.scores[head][port][local][lane] != 0) ? att"),
]


def build_breakable(folder: Path) -> Path:
    return build_mutants(folder, ENGINE, FAULTS)


def engine_of(bundle: Bundle, library: EngineLibrary | None = None, kind: type = CSimBackend) -> CSimBackend:
    model, manifest = bundle.model()[0], bundle.manifest
    library = library or EngineLibrary(ENGINE)
    return kind(library, pack_model(model, ENGINE), manifest.config, manifest.frame_layout, depth=manifest.depth)


class Breakable:
    """``path``: of ``build_breakable``."""

    def __init__(self, path: Path, bundle: Bundle) -> None:
        self.bundle = bundle
        self.backend = engine_of(bundle, EngineLibrary(ENGINE, path))
        library = ctypes.CDLL(str(path))
        self.switches = [ctypes.c_int.in_dll(library, f"fastcar_faulty_{what}") for what in ("node", "layer", "code")]

    def report(self, node: int, layer: int, code: int = 0) -> SelfTestReport:
        for switch, value in zip(self.switches, (node, layer, code), strict=True):
            switch.value = value
        try:
            return self_test(self.backend, self.bundle)
        finally:
            self.switches[0].value = 0
