"""Published decode accelerators, planned with what each publication states, beside what it measured.

A design is counted by the schedule of this project's engine, with parallelism to spare, at the clock and the share of
the memory's rate that the publication states; where it states none, at 85 %. Weights of other than 4 or 8 bits are
counted as 8 and scaled.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...boards.load import tomllib
from ...export.overlay.program import ProgramPlan, int4_linears
from ...hls.counting import ANY_ENGINE, Counter, Memory
from ..config import BackboneConfig, FrameLayout, Frozen
from ..program.descriptors import Opcode
from ..program.memory import BEAT_BYTES
from .step import Rows, StepCounter, total, whole

__all__ = ["CLOSE", "Comparison", "Design", "PublishedReplay", "compare", "published_designs", "published_replay"]

FILE = Path(__file__).with_name("published.toml")
CLOSE = 0.15  # relative error that counts as reproduced
SUSTAINED = 0.85  # of the peak, where a publication does not say
WIDEST_HEAD = 32_064  # outputs counted at once
SPARE = {"groups": 16, "vector": 16, "weight_fifo_beats": 8192}  # so that nothing but the memory limits


class Design(Frozen):
    """One row of ``published.toml``."""

    work: str
    board: str
    model_name: str
    model: tuple[int, int, int, int, int, int, int]
    gated: bool = True
    weight_bits: float
    context: int
    clock_mhz: float
    peak_gb_s: float
    bandwidth_use: float
    port_width: int = 1
    tokens_per_second: float
    watts: float | None = None
    lut: int | None = None
    must: bool = False
    note: str = ""

    @property
    def counted_bits(self) -> int:
        """Weights are counted with 4 or 8 bits."""
        return 4 if self.weight_bits == 4 else 8


class ReplayRow(Frozen):
    """``ratio``: of all MLP evaluations; ``window`` None: full attention; seconds of a clip, PSNR against dense."""

    ratio: float
    window: int | None = None
    seconds: float
    psnr_db: float


class PublishedReplay(Frozen):
    """What the paper of replay measured."""

    work: str
    board: str
    model_name: str
    dense_seconds: float
    note: str
    rows: tuple[ReplayRow, ...]

    def speed_up(self, row: ReplayRow) -> float:
        """Over the dense clip."""
        return self.dense_seconds / row.seconds


@dataclass(frozen=True)
class Comparison:
    """Predicted beside published; ``use`` of the peak bandwidth that was planned with, ``stated`` or assumed."""

    design: Design
    predicted: float
    bytes_per_token: float
    use: float
    stated: bool

    @property
    def error(self) -> float:
        """Relative to the published figure."""
        return self.predicted / self.design.tokens_per_second - 1

    @property
    def reproduced(self) -> bool:
        return abs(self.error) <= CLOSE


def published_designs() -> tuple[Design, ...]:
    return tuple(Design.model_validate(entry) for entry in tomllib.loads(FILE.read_text("utf-8"))["design"])


def published_replay() -> PublishedReplay:
    return PublishedReplay.model_validate(tomllib.loads(FILE.read_text("utf-8"))["replay"])


def compare(design: Design, counter: Counter) -> Comparison:
    """One row a step: these publications decode one text."""
    use = design.bandwidth_use or SUSTAINED
    rate = design.peak_gb_s * use * 1e3 / design.clock_mhz / BEAT_BYTES
    rate *= design.counted_bits / design.weight_bits  # fewer bits are as many more of those counted
    engine = ANY_ENGINE.model_copy(update={**SPARE, "clock_mhz": design.clock_mhz})
    memory = Memory(rate, max(design.port_width, round(rate / 4 + 0.5)))
    dense = np.zeros((1, design.model[0]), np.uint32)
    counts = [
        (StepCounter(counter, plan, Rows(1, 1), engine, memory, omitted=omitted).counts(design.context, dense, True), n)
        for plan, omitted, n in _parts(design)
    ]
    sums = whole(total(counts))
    scaled = BEAT_BYTES * sums.beats * design.weight_bits / design.counted_bits
    return Comparison(design, design.clock_mhz * 1e6 / sums.cycles, scaled, use, design.bandwidth_use > 0)


def _parts(design: Design) -> tuple[tuple[ProgramPlan, frozenset[Opcode], float], ...]:
    """What is counted how often: the layers, and the head in parts the formats can hold. No sampling of codes."""
    layers, hidden, heads, kv_heads, head_dim, mlp, outputs = design.model
    parts = -(-outputs // WIDEST_HEAD)
    codes = -(-outputs // parts)
    config = BackboneConfig(
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        mlp=mlp if design.gated else round(mlp * 2 / 3 / 8) * 8,  # as many weights
        vocab=codes,
    )
    positions = -(-(design.context + 2) // 64) * 64
    layout = FrameLayout(prompt_length=1, frames=1, grid=(1, positions - 1), code_offset=0, codes=codes)
    int4 = int4_linears(design.counted_bits) | {"head": design.counted_bits == 4}
    plan, head = ProgramPlan(config, layout, int4, ANY_ENGINE), frozenset({Opcode.LINEAR_LOGITS})
    return (plan, head | {Opcode.SAMPLE}, 1.0), (plan, frozenset(Opcode) - head, float(parts))
