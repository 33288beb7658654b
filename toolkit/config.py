"""Shape of a model and of its video: the part of a checkpoint that every stage agrees on."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

__all__ = ["BackboneConfig", "FrameLayout", "Frozen", "RopeScaling"]

Positive = Annotated[int, Field(gt=0, le=(1 << 31) - 1)]
"""What registers and 32-bit indices hold."""


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
    """A LLaMA-style decoder: RMSNorm, rotary embedding, grouped-query attention, SwiGLU, no biases."""

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


class FrameLayout(Frozen):
    """Where the video sits in the flattened clip: ``prompt_length`` positions, then ``frames`` x ``tokens_per_frame``.

    Codes are the vocabulary entries ``code_offset .. code_offset + codes - 1``.
    """

    prompt_length: Positive
    frames: Positive
    grid: tuple[Positive, Positive]
    code_offset: Annotated[int, Field(ge=0, le=(1 << 31) - 1)]
    codes: Positive

    @property
    def tokens_per_frame(self) -> int:
        return self.grid[0] * self.grid[1]

    @property
    def positions(self) -> int:
        """Positions of a whole clip; the context the model was trained for."""
        return self.prompt_length + self.frames * self.tokens_per_frame

    def frame_start(self, frame: int) -> int:
        """Position of the first code of ``frame``."""
        return self.prompt_length + frame * self.tokens_per_frame
