"""An engine large enough for the tests' models and quick to compile."""

from __future__ import annotations

from fastcar.toolkit.program.engine import DepthCapacity, EngineConfig


def small_engine(**changes: int) -> EngineConfig:
    fields = {
        "name": "small",
        "groups": 3,
        "vector": 8,
        "rows": 32,
        "max_layers": 6,
        "max_hidden": 256,
        "max_mlp": 704,
        "max_heads": 8,
        "max_kv_heads": 4,
        "max_group": 8,
        "max_head_dim": 64,
        "max_slots": 1088,
        "max_codes": 512,
        "weight_fifo_beats": 256,
        "clock_mhz": 300.0,
    }
    return EngineConfig(**{**fields, **changes})


def deep_engine(**changes: int) -> EngineConfig:
    """The same with room for depth transformers."""
    depth = DepthCapacity(layers=3, codes_per_position=4, code_dim=64)
    return small_engine(**{"name": "deep", "max_kv_heads": 8, "depth": depth} | changes)
