"""Small valid starts of an engine, to be broken in every way."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from random_models import random_depth, random_model

from fastcar.export.overlay.compile import pack_model
from fastcar.toolkit.config import BackboneConfig, DepthConfig, FrameLayout
from fastcar.toolkit.program.engine import DepthCapacity, EngineConfig
from fastcar.toolkit.program.memory import BEAT_BYTES, StateLayout
from fastcar.toolkit.program.registers import CONTROL, FLAG_LOGITS, FLAG_REASSIGN, FLAG_TRACE, OWN_CODE

__all__ = ["CODES", "DEEP_ENGINE", "ENGINE", "OFFSET", "PROMPT", "Start", "make_start"]

ENGINE = EngineConfig(
    name="fuzz",
    groups=3,
    vector=8,
    rows=4,
    max_layers=3,
    max_hidden=64,
    max_mlp=64,
    max_heads=4,
    max_kv_heads=2,
    max_group=3,
    max_head_dim=32,
    max_slots=128,
    max_codes=24,
    weight_fifo_beats=256,
    clock_mhz=300,
)
DEEP_ENGINE = ENGINE.model_copy(
    update={"name": "deep", "depth": DepthCapacity(layers=2, codes_per_position=3, code_dim=32)}
)
OFFSET, CODES, PROMPT = 4, 16, 3


@dataclass
class Start:
    """What the host hands over; ``control`` by name."""

    program: np.ndarray
    weights: np.ndarray
    state: np.ndarray
    control: dict[str, float]
    memory: StateLayout

    @property
    def registers(self) -> np.ndarray:
        return CONTROL.pack(**self.control)

    def tokens(self, step: int = 0) -> np.ndarray:
        """(rows,) uint32 of a step, as they lie in the state; with a depth transformer (rows, D)."""
        count, each = self.memory.rows, self.memory.codes_per_position
        words = self._record(step)[: count * each]
        return words if self.memory.depth is None else words.reshape(count, each)

    def uniforms(self, step: int = 0) -> np.ndarray:
        """(clips,) or (clips, D) likewise."""
        count, each = self.memory.clips, self.memory.codes_per_position
        words = self._record(step)[4 * self.memory.input_parts["tokens"] :][: count * each]
        return words if self.memory.depth is None else words.reshape(count, each)

    def paddings(self) -> np.ndarray:
        """(rows,) likewise."""
        memory = self.memory
        return self.state[memory.paddings : memory.input].reshape(-1).view(np.uint32)[: memory.rows]

    def _record(self, step: int) -> np.ndarray:
        beats = sum(self.memory.input_parts.values())
        first = self.memory.input + step * beats
        return self.state[first : first + beats].reshape(-1).view(np.uint32)


def make_start(
    bits: int,
    *,
    frames: int,
    position: int,
    steps: int = 2,
    clips: int = 1,
    guided: bool = True,
    traced: bool = False,
    grid: tuple[int, int] = (2, 2),
    depth: DepthConfig | None = None,
    engine: EngineConfig | None = None,
    **settings: float,
) -> Start:
    """A start in the middle of a clip: random keys and values, replayed outputs of zero, thresholds that some pass.

    With a depth transformer the first step reads codes, too. ``engine`` None: ``ENGINE``, or ``DEEP_ENGINE``.
    """
    engine = engine or (ENGINE if depth is None else DEEP_ENGINE)
    vocab = OFFSET + (CODES if depth is None else 0)
    shape = BackboneConfig(
        hidden=32, layers=2, heads=2, kv_heads=1, head_dim=16, mlp=48 if bits == 8 else 64, vocab=vocab
    )
    where = FrameLayout(prompt_length=PROMPT, frames=frames, grid=grid, code_offset=OFFSET, codes=CODES)
    groups = {} if bits == 8 else dict.fromkeys(("qkv", "output", "gate_up", "down"), 32)
    model = random_model(bits, shape=shape, frames=where, groups=groups)
    if depth is not None:
        model = replace(model, head=None, depth=random_depth(shape.hidden, CODES, depth, None if bits == 8 else 32))
    packed = pack_model(model, engine)
    rows = clips * (2 if guided else 1)
    limit = where.positions
    memory = StateLayout.for_clip(shape, where, rows, clips, limit, steps, logits=True, traced=traced, depth=depth)
    rng = np.random.default_rng(bits)
    state = np.zeros((memory.total_beats, BEAT_BYTES), np.uint8)
    state[: memory.cache_beats] = rng.integers(0, 256, (memory.cache_beats, BEAT_BYTES))
    state[memory.thresholds].view(np.int64)[:] = 0, -(1 << 40)
    inputs = state[memory.input : memory.output].view(np.uint32).reshape(steps, -1)
    tokens, each = 4 * memory.input_parts["tokens"], memory.codes_per_position
    known = vocab if depth is None or settings.get("texts") else CODES  # tokens, or codes
    inputs[:, : rows * each] = rng.integers(0, known, (steps, rows * each))
    inputs[1:, : rows * each] = OWN_CODE
    inputs[:, tokens : tokens + clips * each] = rng.integers(0, 1 << 24, (steps, clips * each))
    control = {
        "descriptors": len(packed.program),
        "weight_beats": len(packed.weights),
        "state_beats": len(state),
        "rows": rows,
        "clips": clips,
        "slots": memory.slots,
        "position": position,
        "steps": steps,
        "padding": 0,
        "texts": 0,
        "flags": FLAG_LOGITS | FLAG_REASSIGN | (FLAG_TRACE if traced else 0),
        "policy": 0,
        "max_age": 3,
        "sinks": 0,
        "window": 0,
        "columns": 0,
        "guidance": 2.0,
        "inverse_temperature": 1.0,
        "top_k": CODES,
        "top_p": 60000,
        "thresholds": memory.thresholds,
        "input": memory.input,
        "output": memory.output,
        "trace": memory.trace,
    } | settings
    return Start(packed.program, packed.weights, state, control, memory)
