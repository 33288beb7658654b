"""Where the float weights of a backbone come from, a decoder layer at a time: what is never needed is never held."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Protocol

import torch

from ..toolkit.config import BackboneConfig, DepthConfig
from .depth import CodeEmbedding, DepthTransformer
from .llama import DecoderLayer, Llama

__all__ = ["BackboneSource", "DepthSource", "LlamaSource"]

Advance = Callable[[int, int], None]


class BackboneSource(Protocol):
    """The weights of a LLaMA-style decoder in float32. What a method returns is its caller's own, to change or drop."""

    config: BackboneConfig

    def first(self, layers: int) -> BackboneSource:
        """The same model with so many of its first layers."""

    def check(self, advance: Advance) -> None:
        """CheckpointError for the first value that is no finite number; reads everything, keeps nothing.

        ``advance(done, total)`` is called as tensors are read.
        """

    def embedding(self) -> torch.Tensor:
        """(vocab, hidden)."""

    def layer(self, index: int) -> DecoderLayer:
        """In evaluation mode, without gradients."""

    def final_gain(self) -> torch.Tensor:
        """(hidden,) of the norm before the head."""

    def head(self, first: int, count: int) -> torch.Tensor:
        """(count, hidden): the rows of the head from the vocabulary's entry ``first`` on."""


class DepthSource(Protocol):
    """The weights of a depth transformer in float32, read when they are asked for.

    CheckpointError for the first value that is no finite number.
    """

    config: DepthConfig

    def embedding(self) -> CodeEmbedding: ...

    def transformer(self) -> DepthTransformer: ...


class LlamaSource:
    """A model that is in memory already; it is left as it was."""

    def __init__(self, llama: Llama) -> None:
        self.config, self.llama = llama.config, llama

    def first(self, layers: int) -> LlamaSource:
        some = LlamaSource(self.llama)
        some.config = self.config.model_copy(update={"layers": layers})
        return some

    def check(self, advance: Advance) -> None:
        from .quantize.checks import check_finite  # only here: quantization needs more packages than training

        check_finite(self.llama)
        advance(1, 1)

    def embedding(self) -> torch.Tensor:
        return self.llama.model.embed_tokens.weight.detach().clone()

    def layer(self, index: int) -> DecoderLayer:
        return deepcopy(self.llama.model.layers[index]).eval().requires_grad_(False)

    def final_gain(self) -> torch.Tensor:
        return self.llama.model.norm.weight.detach().clone()

    def head(self, first: int, count: int) -> torch.Tensor:
        return self.llama.lm_head.weight.detach()[first : first + count].clone()
