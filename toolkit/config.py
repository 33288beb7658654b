"""Shape of a model and of its video: the part of a checkpoint that every stage agrees on."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

__all__ = [
    "CRITERIA",
    "MAX_POSITIONS",
    "PADDING",
    "SAMPLED",
    "TAS_HEADS",
    "BackboneConfig",
    "Criterion",
    "DepthConfig",
    "FrameLayout",
    "Frozen",
    "Positive",
    "RopeScaling",
    "TasHeads",
    "check_separators",
]

TasHeads = Literal["mean", "max", "min"]
TAS_HEADS: tuple[str, ...] = get_args(TasHeads)
"""What TAS makes of the heads' logits."""

Positive = Annotated[int, Field(gt=0, le=(1 << 31) - 1)]
"""What registers and 32-bit indices hold."""

Criterion = Literal["tas", "mlp-input"]
"""What replay is decided by: TAS, or the similarity of MLP inputs (``numerics.similarity``)."""

CRITERIA: tuple[str, ...] = get_args(Criterion)
Token = Annotated[int, Field(ge=0, le=(1 << 31) - 1)]
MAX_POSITIONS = 1 << 16  # a step sees at most 65535 slots: what attention's integer sums are wide enough for
SAMPLED = -1  # in a pattern: the place of a code
PADDING = -1  # in a prompt's row, in front: a position that nothing attends to


class Frozen(BaseModel):
    """A value read from a file: immutable, and a field nobody knows is an error rather than ignored."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class RopeScaling(Frozen):
    """How rotary frequencies are stretched for a context longer than the ``original_positions`` of the training.

    ``linear``: all by ``factor``. ``llama3``: low frequencies by ``factor``, high ones not, smoothly in between, by how
    often a wave fits into the original context. ``yarn`` (arXiv 2309.00071, section 3.2): likewise by the number of
    turns, ``beta_slow`` to ``beta_fast``; cosines and sines times ``attention_factor``, 0.1 ln(factor) + 1 by default.
    """

    type: Literal["linear", "llama3", "yarn"]
    factor: float = Field(ge=1, allow_inf_nan=False)
    original_positions: Positive | None = None
    low_freq_factor: float = Field(1.0, gt=0, allow_inf_nan=False)
    high_freq_factor: float = Field(4.0, gt=0, allow_inf_nan=False)
    beta_fast: float = Field(32.0, gt=0, allow_inf_nan=False)
    beta_slow: float = Field(1.0, gt=0, allow_inf_nan=False)
    attention_factor: float | None = Field(None, gt=0, allow_inf_nan=False)

    @model_validator(mode="after")
    def _complete(self) -> RopeScaling:
        if self.type != "linear" and self.original_positions is None:
            raise ValueError(f"{self.type} needs original_positions")
        if self.high_freq_factor <= self.low_freq_factor:
            raise ValueError(f"high_freq_factor {self.high_freq_factor} must be above {self.low_freq_factor}")
        return self


class BackboneConfig(Frozen):
    """A LLaMA-style decoder: RMSNorm, rotary embedding, grouped-query attention, SwiGLU.

    ``attention_bias``: the query, key, value and output projections add one; ``mlp_bias``: gate, up and down do.
    """

    hidden: Positive
    layers: Positive
    heads: Positive
    kv_heads: Positive
    head_dim: Positive
    mlp: Positive
    vocab: Positive
    rope_theta: float = Field(10000.0, gt=0, allow_inf_nan=False)
    rope_scaling: RopeScaling | None = None
    norm_eps: float = Field(1e-5, gt=0, allow_inf_nan=False)
    attention_bias: bool = False
    mlp_bias: bool = False

    @model_validator(mode="after")
    def _divisible(self) -> BackboneConfig:
        if self.heads % self.kv_heads:
            raise ValueError(f"heads {self.heads} must be a multiple of kv_heads {self.kv_heads}")
        if self.head_dim % 2:
            raise ValueError(f"head_dim {self.head_dim} must be even: rotary embedding turns pairs")
        return self

    @property
    def group(self) -> int:
        """Query heads that share one key/value head."""
        return self.heads // self.kv_heads

    @property
    def layer_weights(self) -> int:
        """Weights of the linear layers of one decoder layer."""
        return self.hidden * (2 * (self.heads + self.kv_heads) * self.head_dim + 3 * self.mlp)

    def has_bias(self, name: str) -> bool:
        """Whether a linear layer adds one, by its name: qkv, output, gate_up, down or head."""
        return {"qkv": self.attention_bias, "output": self.attention_bias, "head": False}.get(name, self.mlp_bias)


class DepthConfig(Frozen):
    """A transformer over the residual codes of one position (arXiv 2203.01941, section 3.2.2): LayerNorm, GELU, biases.

    ``codes_per_position``: D, the residual codes; each is embedded by a codebook of ``code_dim``, one for all of them
    if ``shared_codebook``. ``projector_layers``: linear layers, GELU between, from the sum of a position's embeddings
    to the backbone's hidden.
    """

    hidden: Positive
    layers: Positive
    heads: Positive
    mlp: Positive
    codes_per_position: Positive
    code_dim: Positive
    shared_codebook: bool = False
    projector_layers: Positive = 1
    norm_eps: float = Field(1e-5, gt=0, le=2.0**-12, allow_inf_nan=False)

    @model_validator(mode="after")
    def _divisible(self) -> DepthConfig:
        if self.hidden % self.heads:
            raise ValueError(f"hidden {self.hidden} must be a multiple of heads {self.heads}")
        return self

    @property
    def head_dim(self) -> int:
        return self.hidden // self.heads

    @property
    def books(self) -> int:
        """Codebooks that a checkpoint holds."""
        return 1 if self.shared_codebook else self.codes_per_position

    def weights(self, codes: int, backbone_hidden: int) -> int:
        """Of its linear layers and codebooks, the projector's among them."""
        into = backbone_hidden * (self.code_dim + (self.projector_layers - 1) * backbone_hidden)
        own = self.hidden * (self.layers * (4 * self.hidden + 2 * self.mlp) + self.code_dim + backbone_hidden + codes)
        return into + own + self.books * codes * self.code_dim

    @property
    def kv_heads(self) -> int:
        """Every query head has a key/value head of its own."""
        return self.heads

    @property
    def group(self) -> int:
        return 1


class FrameLayout(Frozen):
    """Where the video sits in the flattened clip: ``prompt_length`` positions, then ``frames`` x ``tokens_per_frame``.

    ``frames``: of the clips the model was trained on; ``max_frames``: of the longest clip there is room for, in rotary
    tables and caches; None: no longer than those.
    Codes are the vocabulary entries ``code_offset .. code_offset + codes - 1``; with a depth transformer ``codes`` are
    those of a codebook, and no vocabulary entries. Between them may stand separators, with known tokens:
    ``before_frame``, then the rows of the ``grid``, each followed by ``after_row``, then ``after_frame``. A separator
    takes a position like a code does; its token is not sampled but forced. Every frame has all of them, the clip's last
    one too.
    """

    prompt_length: Positive
    frames: Positive
    grid: tuple[Positive, Positive]
    code_offset: Token
    codes: Positive
    before_frame: tuple[Token, ...] = ()
    after_row: tuple[Token, ...] = ()
    after_frame: tuple[Token, ...] = ()
    max_frames: Positive | None = None

    @model_validator(mode="after")
    def _room_for_what_it_was_trained_for(self) -> FrameLayout:
        if self.max_frames is not None and self.max_frames < self.frames:
            raise ValueError(f"max_frames {self.max_frames} must be at least frames {self.frames}")
        if self.positions > MAX_POSITIONS:
            raise ValueError(f"{self.positions} positions of {self.room} frames, at most {MAX_POSITIONS} can be")
        return self

    @model_validator(mode="after")
    def _separators_are_no_codes(self) -> FrameLayout:
        for name in ("before_frame", "after_row", "after_frame"):
            for token in getattr(self, name):
                if self.code_offset <= token < self.code_offset + self.codes:
                    last = self.code_offset + self.codes - 1
                    raise ValueError(f"{name} holds {token}, which is a code ({self.code_offset} to {last})")
        return self

    @property
    def separators(self) -> frozenset[int]:
        """The tokens that are forced."""
        return frozenset((*self.before_frame, *self.after_row, *self.after_frame))

    @property
    def cells(self) -> int:
        """Codes of a frame."""
        return self.grid[0] * self.grid[1]

    @property
    def tokens_per_frame(self) -> int:
        """Positions of a frame, its places: codes and separators."""
        rows = self.grid[0] * (self.grid[1] + len(self.after_row))
        return len(self.before_frame) + rows + len(self.after_frame)

    @property
    def pattern(self) -> np.ndarray:
        """(places,) int64: the token that is forced there, ``SAMPLED`` where a code stands."""
        row = [SAMPLED] * self.grid[1] + list(self.after_row)
        return np.array([*self.before_frame, *row * self.grid[0], *self.after_frame], np.int64)

    @property
    def cell_places(self) -> np.ndarray:
        """(cells,) int64: the places of the codes, row by row of the grid."""
        return np.flatnonzero(self.pattern == SAMPLED)

    @property
    def room(self) -> int:
        """Frames of the longest clip."""
        return self.frames if self.max_frames is None else self.max_frames

    @property
    def positions(self) -> int:
        """Positions of the longest clip: rows of the rotary tables, and what caches may have to hold."""
        return self.frame_start(self.room)

    @property
    def trained_positions(self) -> int:
        """Positions of the clips the model was trained on. No attention has seen positions further apart."""
        return self.frame_start(self.frames)

    def of_frames(self, frames: int) -> FrameLayout:
        """The same of clips of ``frames``, and room for no longer ones."""
        return self.model_copy(update={"frames": frames, "max_frames": None})

    def frame_start(self, frame: int) -> int:
        """Position of the first place of ``frame``."""
        return self.prompt_length + frame * self.tokens_per_frame

    def forced(self, first: int, count: int) -> np.ndarray:
        """(count,) int64 of the positions from ``first`` on: as ``pattern``, and ``SAMPLED`` in the prompt."""
        offset = np.arange(first, first + count) - self.prompt_length
        return np.where(offset < 0, SAMPLED, self.pattern[offset % self.tokens_per_frame])

    def after(self, position: int, codes: np.ndarray) -> np.ndarray:
        """Tokens (of the shape of ``codes``) after steps at ``position`` chose ``codes``: these, or the forced one."""
        forced = self.forced(position + 1, 1)[0]
        return codes + self.code_offset if forced == SAMPLED else np.full_like(codes, forced)

    def flattened(self, codes: np.ndarray) -> np.ndarray:
        """Tokens (clips, positions) int64 of the frames of ``codes`` (clips, frames, cells), separators included."""
        tokens = np.broadcast_to(self.pattern, (*codes.shape[:2], self.tokens_per_frame)).copy()
        tokens[..., self.cell_places] = codes.astype(np.int64) + self.code_offset
        return tokens.reshape(len(codes), -1)


def check_separators(layout: FrameLayout, vocab: int) -> str | None:
    """What is wrong with separators of a model with ``vocab`` tokens; None if nothing is."""
    outside = sorted(token for token in layout.separators if token >= vocab)
    return f"separator {outside[0]}, beyond the vocabulary of {vocab}" if outside else None
