"""Configuration of an engine: what the hardware is built for, and the hash that ties program and overlay together."""

from __future__ import annotations

import hashlib
import json

from pydantic import Field, model_validator

from ..config import BackboneConfig, DepthConfig, FrameLayout, Frozen
from ..errors import UsageError
from ..settings import MAX_COLUMNS
from . import descriptors, memory, registers, trace

__all__ = ["MAX_PROJECTOR", "DepthCapacity", "EngineConfig"]

MAX_PROJECTOR = 4  # layers from the codes to the backbone, of any engine that has depth transformers


class DepthCapacity(Frozen):
    """Of an engine that runs depth transformers too: their layers, a position's codes, the values of a code."""

    layers: int = Field(ge=1, le=64)
    codes_per_position: int = Field(ge=1, le=16)
    code_dim: int = Field(ge=32, le=16384, multiple_of=32)


class EngineConfig(Frozen):
    """Capacities and parallelism of one overlay. ``groups``: processing groups of each of the four port columns.

    ``vector``: lanes of the norm and quantization units; ``weight_fifo_beats``: prefetch depth of each port. ``depth``:
    what it holds of a depth transformer, whose widths and heads the other limits bound; None: it runs none.
    """

    name: str
    groups: int = Field(ge=1, le=32)
    vector: int = Field(ge=1, le=16)
    rows: int = Field(ge=1, le=32)
    max_layers: int = Field(ge=1, le=256)
    max_hidden: int = Field(ge=32, le=16384, multiple_of=32)
    max_mlp: int = Field(ge=32, le=65536, multiple_of=32)
    max_heads: int = Field(ge=1, le=256)
    max_kv_heads: int = Field(ge=1, le=256)
    max_group: int = Field(ge=1, le=32)  # query heads of a key/value head
    max_head_dim: int = Field(ge=16, le=256, multiple_of=16)
    max_slots: int = Field(ge=64, le=65536, multiple_of=64)
    max_codes: int = Field(ge=8, le=32768, multiple_of=8)
    weight_fifo_beats: int = Field(ge=64, le=16384)
    clock_mhz: float = Field(ge=1, le=1000)  # beyond what the logic of these devices takes
    depth: DepthCapacity | None = None

    @model_validator(mode="after")
    def _consistent(self) -> EngineConfig:
        if 16 % self.vector:
            raise ValueError(f"vector {self.vector} must divide 16, the values of a beat")
        if self.max_heads * self.max_head_dim > 32768:
            raise ValueError("max_heads * max_head_dim above 32768: the score of a row would not fit")
        if self.max_kv_heads > self.max_heads:
            raise ValueError(f"max_kv_heads {self.max_kv_heads} above max_heads {self.max_heads}")
        if self.max_kv_heads * self.max_head_dim > 16 * 511:
            raise ValueError("max_kv_heads * max_head_dim above 8176: a row's keys would not fit the cache port's FIFO")
        return self

    @property
    def max_inputs(self) -> int:
        """Values of a quantized row."""
        return max(self.max_hidden, self.max_mlp, -(-self.max_heads * self.max_head_dim // 32) * 32)

    @property
    def max_wide(self) -> int:
        """Values of a row of intermediate results."""
        qkv = (self.max_heads + 2 * self.max_kv_heads) * self.max_head_dim
        return -(-max(qkv, self.max_mlp, self.max_hidden, self.max_codes) // 32) * 32

    @property
    def build_id(self) -> int:
        """32 bits of the hash of the configuration, but its name, and of all that program and engine must agree on."""
        records = (descriptors.MODEL, descriptors.DEPTH, descriptors.NODE, registers.CONTROL, registers.REPORT)
        orders = (descriptors.LAYER, descriptors.ENDING)
        orders += (descriptors.DEPTH_INPUTS, descriptors.DEPTH_LAYER, descriptors.DEPTH_ENDING)
        agreed = {
            "configuration": self.model_dump(exclude={"name"}),
            "version": descriptors.FORMAT_VERSION,
            "records": [[(word.name, word.kind) for word in record.words] for record in records],
            "order": [[code.name for code in order] for order in orders],
            "opcodes": {code.name: code.value for code in descriptors.Opcode},
            "flags": [
                *(descriptors.NODE_INT4, descriptors.NODE_BIAS, descriptors.PRE_ROPE, descriptors.MODEL_DEPTH),
                *descriptors.TAS_HEADS_CODES.values(),
                *registers.FLAGS.values(),
                *(registers.OWN_CODE, registers.GIVEN),
            ],
            "status": {code: name for code, (name, _) in registers.STATUS.items()},
            "policies": registers.POLICY_CODES,
            "trace": {code.name: kind for code, kind in trace.KINDS.items()},
            "layout": [memory.PORTS, memory.BEAT_BYTES, memory.BLOCK_SLOTS, memory.DEPTH_SLOTS],
            "columns": MAX_COLUMNS,
        }
        text = json.dumps(agreed, sort_keys=True)
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "little")

    def check(self, config: BackboneConfig, layout: FrameLayout, depth: DepthConfig | None = None) -> None:
        """UsageError naming the first dimension this engine is too small for, or cannot tile."""
        if depth is not None:
            self._check_depth(depth)
        limits = {
            "layers": (config.layers, self.max_layers),
            "hidden": (config.hidden, self.max_hidden),
            "mlp": (config.mlp, self.max_mlp),
            "heads": (config.heads, self.max_heads),
            "kv_heads": (config.kv_heads, self.max_kv_heads),
            "heads a key/value head": (config.group, self.max_group),
            "head_dim": (config.head_dim, self.max_head_dim),
            "codes": (layout.codes, self.max_codes),
            "last code": (layout.code_offset + (layout.codes if depth is None else 0), config.vocab),
            "last separator": (1 + max(layout.separators, default=-1), config.vocab),
            "positions": (layout.positions, self.max_slots),
        }
        for name, (value, limit) in limits.items():
            if value > limit:
                fix = "Choose a larger engine."
                fits = (self.max_slots - layout.prompt_length) // layout.tokens_per_frame
                if name == "positions" and layout.frames <= fits:
                    fix = f"Choose a larger engine, or export with --max-frames {fits}."
                raise UsageError(f"engine {self.name}", f"{name} {value}", f"at most {limit}", fix)
        self._check_multiples(
            {"head_dim": (config.head_dim, 16), "hidden": (config.hidden, 16), "mlp": (config.mlp, 8)}
        )

    def _check_depth(self, depth: DepthConfig) -> None:
        if self.depth is None:
            raise UsageError(
                f"engine {self.name}",
                "a model with a depth transformer",
                "one with a head: this engine has no [depth]",
                "Have one sized for it: fastcar plan MODEL --board BOARD --out DIR.",
            )
        limits = {
            "layers": (depth.layers, self.depth.layers),
            "codes_per_position": (depth.codes_per_position, self.depth.codes_per_position),
            "code_dim": (depth.code_dim, self.depth.code_dim),
            "projector_layers": (depth.projector_layers, MAX_PROJECTOR),
            "hidden": (depth.hidden, self.max_hidden),
            "mlp": (depth.mlp, self.max_mlp),
            "heads": (depth.heads, min(self.max_heads, self.max_kv_heads)),
            "head_dim": (depth.head_dim, self.max_head_dim),
        }
        for name, (value, limit) in limits.items():
            if value > limit:
                found = f"{name} {value} of the depth transformer"
                raise UsageError(f"engine {self.name}", found, f"at most {limit}", "Choose a larger engine.")
        self._check_multiples(
            {
                "head_dim of the depth transformer": (depth.head_dim, 16),
                "hidden of the depth transformer": (depth.hidden, 16),
                "mlp of the depth transformer": (depth.mlp, 16),
                "code_dim": (depth.code_dim, 16),
            }
        )

    def _check_multiples(self, dimensions: dict[str, tuple[int, int]]) -> None:
        for name, (value, multiple) in dimensions.items():
            if value % multiple:
                expected, fix = f"a multiple of {multiple}", "No overlay can run this model."
                raise UsageError(f"engine {self.name}", f"{name} {value}", expected, fix)
