"""Quantization layer by layer: one float layer in memory, the clips' hidden states on disk between two of them."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.nn import functional as F

from ...toolkit.config import FrameLayout
from ...toolkit.errors import CheckpointError
from ...toolkit.numerics.depth import TEXT
from ...toolkit.numerics.weights import LayerWeights, LinearWeights
from ..depth import CodeEmbedding, DepthTransformer
from ..llama import rotary_tables
from ..source import BackboneSource
from .activations import Activations
from .calibrate import fix_head_scales, silent_heads
from .depth import QuantizedDepth, quantize_depth
from .equalize import equalize
from .evaluate import predicted_codes, summed_nats
from .extract import layer_weights, linear_weights
from .gptq import run_gptq
from .network import QuantDecoderLayer, QuantHead
from .observe import LayerPeaks
from .recipes import Recipe
from .report import zero_outputs

__all__ = ["LayerQuantizer", "QuantizedHead", "QuantizedLayer"]

Layer = Callable[[torch.Tensor], torch.Tensor]
DEPTH_POSITIONS = 512  # that calibrate a depth transformer: maxima of few heads


@dataclass(frozen=True)
class QuantizedLayer:
    """``weights`` are deployed; ``module`` is the same in Brevitas."""

    weights: LayerWeights
    module: QuantDecoderLayer
    notes: list[str]


@dataclass(frozen=True)
class QuantizedHead:
    """``cross_entropies``: held-out nats a code of the float and of the quantized model, if clips were given."""

    weights: LinearWeights
    final_gain: torch.Tensor
    module: QuantHead
    notes: list[str]
    cross_entropies: tuple[float, float] | None


class LayerQuantizer:
    """Equalizes, calibrates and rounds the layers of ``source`` in turn; ``folder`` holds what passes between them.

    ``calibration``, ``held_out`` (clips, positions) int64; of the first the recipe's number of clips is used. After
    ``begin`` (or a process that had got as far) ``layer`` is called for 0, 1, ... and ``drop`` behind each; then
    ``head``, or ``depth`` of a model with a depth transformer, whose codes are embedded by ``codes``. No activation is
    held beyond its batch, and of the backbone no more than one layer.
    """

    def __init__(
        self,
        source: BackboneSource,
        layout: FrameLayout,
        recipe: Recipe,
        calibration: torch.Tensor,
        held_out: torch.Tensor | None,
        folder: Path,
        tas_query: str = "post_rope",
        codes: CodeEmbedding | None = None,
    ) -> None:
        self.source, self.layout, self.recipe, self.tas_query = source, layout, recipe, tas_query
        self.held_out, self.codes = held_out, codes
        self.tokens = {"calibration": calibration[: recipe.calibration_clips]}
        if recipe.method == "gptq":  # what a layer gets from the quantized ones before it
            self.tokens["calibration-quantized"] = self.tokens["calibration"]
        if held_out is not None:
            self.tokens |= {"held-out": held_out, "held-out-quantized": held_out}
        hidden = source.config.hidden
        self.states = {
            name: Activations(folder, name, (*tokens.shape[:2], hidden)) for name, tokens in self.tokens.items()
        }
        self.cos, self.sin = rotary_tables(source.config, layout.trained_positions)

    @torch.no_grad()
    def begin(self) -> None:
        embedding = self.source.embedding()
        halves = embedding.half()
        for name, states in self.states.items():
            table = halves if name.endswith("quantized") else embedding
            states.begin(self.tokens[name], lambda tokens, table=table: self._embed(tokens, table))

    def _embed(self, tokens: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        if self.codes is None:
            return F.embedding(tokens, table)
        text, codes = tokens[..., 0], tokens[..., 1:].clamp(min=0)
        return torch.where(text[..., None] == TEXT, self.codes(codes), F.embedding(text.clamp(min=0), table))

    @torch.no_grad()
    def layer(self, index: int) -> QuantizedLayer:
        """CheckpointError if the layer cannot be read, or computes what is no finite number."""
        gc.collect()  # the modules of the layer before refer to each other, and hold its weights
        layer, peaks = self.source.layer(index), LayerPeaks()
        self._advance("calibration", index, lambda x: peaks.run(layer, x, *self._turn(x)))
        for name, peak in {**peaks.inputs, **peaks.heads}.items():
            if not torch.isfinite(peak).all():
                found = f"{name}: values beyond float32 on the calibration clips"
                fix = "Are these the weights of this config.json? Copy both again."
                raise CheckpointError(f"layers.{index}", found, "finite activations", fix)
        self._advance("held-out", index, lambda x: layer(x, *self._turn(x)))
        equalize(layer, peaks, self.recipe.equalization)
        quantized = QuantDecoderLayer(layer, self.recipe)
        scales = fix_head_scales(quantized.self_attn, peaks, with_unrotated=self.tas_query == "pre_rope")
        notes = silent_heads(index, peaks)
        if self.recipe.method == "gptq":
            states = self.states["calibration-quantized"]
            notes += [
                f"layers.{index}.{note}"
                for note in run_gptq(quantized, ((x, *self._turn(x)) for x in states.batches(index)))
            ]
        weights = layer_weights(quantized, scales)
        for name, linear in weights.linears():
            notes += zero_outputs(f"layers.{index}.{name}", linear)
        for name in ("calibration-quantized", "held-out-quantized"):
            self._advance(name, index, lambda x: quantized(x, *self._turn(x)))
        return QuantizedLayer(weights, quantized, notes)

    def drop(self, index: int) -> None:
        """The states in front of a layer that is safely written."""
        for states in self.states.values():
            states.drop(index)

    @torch.no_grad()
    def head(self) -> QuantizedHead:
        layout = self.layout
        gain, weight = self.source.final_gain(), self.source.head(layout.code_offset, layout.codes)
        module = QuantHead(self.source.config, gain, weight)
        linear = linear_weights(module.linear)
        entropies = None
        if self.held_out is not None:
            entropies = self._cross_entropy("held-out", lambda x: F.linear(module.norm(x), weight))
            entropies = entropies, self._cross_entropy("held-out-quantized", module)
        return QuantizedHead(linear, gain, module, zero_outputs("head", linear), entropies)

    @torch.no_grad()
    def depth(self, transformer: DepthTransformer, progress: Callable[[int, int], None]) -> QuantizedDepth:
        """In place of ``head``: calibrated on some positions of the float model's last states."""
        states, tokens = self.states["calibration"], self.tokens["calibration"]
        hidden, codes = [], []
        for x, read in zip(states.batches(self.source.config.layers), tokens.split(states.batch), strict=True):
            known = read[:, 1:, 1:]  # those after each position but the last
            predicting = known[..., 0] != TEXT
            hidden.append(x[:, :-1][predicting])
            codes.append(known[predicting])
        hidden, codes = torch.cat(hidden), torch.cat(codes)
        spread = slice(None, None, -(-len(hidden) // DEPTH_POSITIONS))
        normed = F.rms_norm(hidden[spread], hidden.shape[1:], self.source.final_gain(), self.source.config.norm_eps)
        return quantize_depth(transformer, self.codes, self.recipe, normed, codes[spread], progress)

    def _cross_entropy(self, name: str, head: Layer) -> float:
        """Nats a code."""
        states = self.states[name]
        clips = zip(states.batches(self.source.config.layers), self.held_out.split(states.batch), strict=True)
        return sum(summed_nats(head(x), tokens, self.layout) for x, tokens in clips) / predicted_codes(
            self.held_out, self.layout
        )

    def _advance(self, name: str, index: int, run: Layer) -> None:
        if name in self.states:
            self.states[name].advance(index, run)

    def _turn(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.cos[: x.shape[1]], self.sin[: x.shape[1]]
