"""What the engine's test bench runs: a model small enough for every engine, and the sizes of its buffers.

Co-simulation needs to know how far each pointer reaches (UG1399, depth of the INTERFACE pragma). The depths in
``config.h`` are those of this model, and the bench's buffers are exactly as long.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..export.overlay.program import ProgramPlan
from ..toolkit.config import BackboneConfig, DepthConfig, FrameLayout
from ..toolkit.program.descriptors import WORDS
from ..toolkit.program.engine import EngineConfig
from ..toolkit.program.memory import BEAT_BYTES, StateLayout

__all__ = ["BenchModel", "bench_model"]

OFFSET, CODES, PROMPT = 4, 8, 3
INT4 = frozenset({"gate_up", "fc2"})  # 4 bits in one linear layer of each transformer, 8 in the others


@dataclass(frozen=True)
class BenchModel:
    """Shape, frames and number of rows; two rows are one clip with guidance. ``depth``: if the engine runs such."""

    config: BackboneConfig
    layout: FrameLayout
    rows: int
    depth: DepthConfig | None = None

    @property
    def state(self) -> StateLayout:
        """Of one step a start.

        In co-simulation each bundle of ports has a memory of its own: what the cache port writes, a read port sees in
        the next start and not before. Those of the depth transformer are for the position itself: see ``starts``.
        """
        limit = self.layout.positions
        return StateLayout.for_clip(self.config, self.layout, self.rows, 1, limit, 1, logits=True, depth=self.depth)

    @property
    def starts(self) -> int:
        """How often a step is started, each time the same, until its results are right where a start does not read
        what it has written: the first leaves keys and values of the first residual code, the next of the second."""
        return self.state.codes_per_position

    def plan(self, engine: EngineConfig) -> ProgramPlan:
        linears = ["qkv", "output", "gate_up", "down", "head"]
        if self.depth is not None:
            linears += [f"projector.{layer}" for layer in range(self.depth.projector_layers)]
            linears += ["depth.in_mlp_1", "depth.in_mlp_2", "depth.classifier"]
            blocks = ("qkv", "output", "fc1", "fc2")
            linears += [f"depth.blocks.{layer}.{name}" for layer in range(self.depth.layers) for name in blocks]
        int4 = {name: name.rpartition(".")[2] in INT4 for name in linears}
        return ProgramPlan(self.config, self.layout, int4, engine, depth=self.depth)

    def depths(self, engine: EngineConfig) -> dict[str, int]:
        """Beats of each buffer by the constant that says so in ``config.h``."""
        plan = self.plan(engine)
        descriptors = plan.headers + len(plan.nodes)
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
    rows = min(2, engine.rows)
    if engine.depth is None:
        return BenchModel(config, layout, rows)
    heads = min(2, engine.max_kv_heads)
    depth = DepthConfig(
        hidden=16 * heads,
        layers=min(2, engine.depth.layers),
        heads=heads,
        mlp=32,
        codes_per_position=min(3, engine.depth.codes_per_position),
        code_dim=16,
        projector_layers=2,
    )
    return BenchModel(config.model_copy(update={"vocab": OFFSET}), layout, rows, depth)  # codes are no vocabulary
