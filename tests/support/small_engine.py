"""An engine large enough for the tests' models and quick to compile."""

from __future__ import annotations

from fastcar.toolkit.program.engine import EngineConfig


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
