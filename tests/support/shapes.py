"""The 1.1 B shape (22 layers, 2048 hidden, 5632 MLP, 32 heads, 4 KV heads) over codes instead of a text vocabulary,
and starts of it that are only counted."""

from __future__ import annotations

import numpy as np

from fastcar.export.overlay.program import ProgramPlan
from fastcar.hls.counting import ANY_ENGINE, Counts, EngineCounter, Memory, counter_of_any_engine
from fastcar.hls.modes import ModeCounts, count_modes
from fastcar.toolkit.backends.engine_memory import control_settings
from fastcar.toolkit.config import BackboneConfig, DepthConfig, FrameLayout
from fastcar.toolkit.program.engine import EngineConfig
from fastcar.toolkit.program.memory import StateLayout
from fastcar.toolkit.program.registers import CONTROL
from fastcar.toolkit.settings import FULL_ATTENTION, ReplaySettings, SamplingSettings

SHAPE = BackboneConfig(hidden=2048, layers=22, heads=32, kv_heads=4, head_dim=64, mlp=5632, vocab=1280)
FRAMES = FrameLayout(prompt_length=32, frames=8, grid=(16, 16), code_offset=256, codes=1024)
INT4 = dict.fromkeys(("qkv", "output", "gate_up", "down", "head"), True)
SUSTAINED = 19.2e9 * 0.85 / 16 / 300e6  # beats a clock of 300 MHz: 85 % of 19.2 GB/s (arXiv 2502.10659)
STEPS = 16


def count(engine: EngineCounter, rows: int, position: int, replays: np.ndarray) -> dict[str, ModeCounts]:
    """The steps from ``position`` on in every mode; replays (steps, layers) masks of rows."""
    clips = max(rows // 2, 1)
    layout = StateLayout.for_clip(SHAPE, FRAMES, rows, clips, FRAMES.positions, len(replays), logits=False)
    plan = ProgramPlan(SHAPE, FRAMES, INT4, ANY_ENGINE)
    program = plan.program()
    control = control_settings(layout, SamplingSettings(1.0, 900, 0.96, 3.0), ReplaySettings(), FULL_ATTENTION) | {
        "descriptors": len(program),
        "weight_beats": plan.end,
        "position": position,
        "steps": len(replays),
        "padding": 0,
        "texts": 0,
        "flags": 0,
    }
    return count_modes(engine, program, [(control, replays)], SUSTAINED)


DEEP_SHAPE = BackboneConfig(hidden=4096, layers=2, heads=32, kv_heads=32, head_dim=128, mlp=11008, vocab=32004)
DEEP_FRAMES = FrameLayout(prompt_length=64, frames=8, grid=(16, 16), code_offset=32004, codes=16384)
DEEP = DepthConfig(hidden=2560, layers=6, heads=40, mlp=10240, codes_per_position=4, code_dim=256, projector_layers=2)
"""Widths of the 7 B model with a depth transformer of 0.47 G weights (arXiv 2409.04429), over two of its layers."""


def count_deep(engine: EngineConfig, rows: int, depth: DepthConfig = DEEP, texts: int = 0) -> Counts:
    """A dense step, 4-bit weights in the layers, without logits in its records."""
    blocks = [
        f"depth.blocks.{layer}.{name}" for layer in range(depth.layers) for name in ("qkv", "output", "fc1", "fc2")
    ]
    eight = [f"projector.{layer}" for layer in range(depth.projector_layers)]
    eight += ["depth.in_mlp_1", "depth.in_mlp_2", "depth.classifier"]
    int4 = dict.fromkeys(("qkv", "output", "gate_up", "down", *blocks), True) | dict.fromkeys(eight, False)
    plan = ProgramPlan(DEEP_SHAPE, DEEP_FRAMES, int4, ANY_ENGINE, depth=depth)
    layout = StateLayout.for_clip(
        DEEP_SHAPE, DEEP_FRAMES, rows, max(rows // 2, 1), DEEP_FRAMES.positions, 1, logits=False, depth=depth
    )
    program = plan.program()
    control = control_settings(layout, SamplingSettings(1.0, 900, 0.96, 3.0), ReplaySettings(), FULL_ATTENTION) | {
        "descriptors": len(program),
        "weight_beats": plan.end,
        "position": 1000,
        "steps": 1,
        "padding": 0,
        "texts": texts,
        "flags": 0,
    }
    dense = np.zeros((1, DEEP_SHAPE.layers), np.uint32)
    return counter_of_any_engine().count(program, CONTROL.pack(**control), dense, engine, Memory(SUSTAINED))


def decisions(rows: int, ratio: float, together: bool) -> np.ndarray:
    """Random decisions (STEPS, layers) at a replay ratio, of all rows together or each its own."""
    random = np.random.default_rng([rows, int(100 * ratio)])
    flags = random.random((STEPS, SHAPE.layers, 1 if together else rows)) < ratio
    flags = np.broadcast_to(flags, (STEPS, SHAPE.layers, rows))
    return (flags.astype(np.uint32) << np.arange(rows, dtype=np.uint32)).sum(axis=2).astype(np.uint32)


__all__ = [
    "DEEP",
    "DEEP_FRAMES",
    "DEEP_SHAPE",
    "FRAMES",
    "INT4",
    "SHAPE",
    "STEPS",
    "SUSTAINED",
    "count",
    "count_deep",
    "decisions",
]
