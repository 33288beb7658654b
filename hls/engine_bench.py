"""What the engine's test bench runs: a model small enough for every engine, and the sizes of its buffers.

Co-simulation needs to know how far each pointer reaches (UG1399, depth of the INTERFACE pragma). The depths in
``config.h`` are those of this model, and the bench's buffers are exactly as long.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..export.overlay.compile import ProgramPlan
from ..toolkit.config import BackboneConfig, FrameLayout
from ..toolkit.program.descriptors import WORDS
from ..toolkit.program.engine import EngineConfig
from ..toolkit.program.memory import BEAT_BYTES, StateLayout

__all__ = ["BenchModel", "bench_model"]

OFFSET, CODES, PROMPT = 4, 8, 3
INT4 = frozenset({"gate_up"})  # 4 bits in one linear layer, 8 in the others


@dataclass(frozen=True)
class BenchModel:
    """Shape, frames and number of rows; two rows are one clip with guidance."""

    config: BackboneConfig
    layout: FrameLayout
    rows: int

    @property
    def state(self) -> StateLayout:
        """Of one step a start.

        In co-simulation each bundle of ports has a memory of its own: what the cache port writes, a read port sees in
        the next start and not before.
        """
        return StateLayout.for_clip(self.config, self.layout, self.rows, 1, self.layout.positions, 1, logits=True)

    def plan(self, engine: EngineConfig) -> ProgramPlan:
        linears = ("qkv", "output", "gate_up", "down", "head")
        return ProgramPlan(self.config, self.layout, {name: name in INT4 for name in linears}, engine)

    def depths(self, engine: EngineConfig) -> dict[str, int]:
        """Beats of each buffer by the constant that says so in ``config.h``."""
        plan = self.plan(engine)
        descriptors = 1 + len(plan.nodes)
        return {
            "PROGRAM_DEPTH": descriptors * WORDS * 4 // BEAT_BYTES,
            "WEIGHT_DEPTH": plan.end,
            "STATE_DEPTH": self.state.total_beats,
        }


def bench_model(engine: EngineConfig) -> BenchModel:
    """Two of whatever the engine can hold two of; every engine holds one."""
    heads = min(2, engine.max_heads, engine.max_group)
    config = BackboneConfig(
        hidden=32,
        layers=min(2, engine.max_layers),
        heads=heads,
        kv_heads=1,
        head_dim=16,
        mlp=32,
        vocab=OFFSET + CODES,
        attention_bias=True,
    )
    layout = FrameLayout(prompt_length=PROMPT, frames=2, grid=(2, 2), code_offset=OFFSET, codes=CODES)
    return BenchModel(config, layout, min(2, engine.rows))
