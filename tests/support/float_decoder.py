"""The decoder in binary64 on dequantized weights, one position at a time, replaying as it is told."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch

from fastcar.export.llama import Llama
from fastcar.toolkit.numerics.weights import IntegerModel, LinearWeights


def dequantized(weights: LinearWeights) -> np.ndarray:
    """(in, out)"""
    group = 1 if weights.multiplier is None else weights.values.shape[0] // weights.multiplier.shape[0]
    factor = 1 if weights.multiplier is None else np.repeat(weights.multiplier.astype(np.float64), group, axis=0)
    return weights.values.astype(np.float64) * factor * weights.scale


class FloatDecoder:
    """``step`` appends one position; keys are rotated as complex numbers, heads are walked one by one.

    ``keys`` and ``values`` (layers, positions, rows, kv_heads, head_dim); ``used`` (layers, positions, rows, hidden),
    computed from the MLP inputs ``used_from``; ``cosine`` (layers, positions, rows) of a position's own MLP input and
    what was used a frame before, NaN in frame 0.
    """

    def __init__(self, model: IntegerModel, rows: int = 2) -> None:
        self.model, self.shape = model, model.config
        self.before = model.layout.tokens_per_frame
        self.position = 0
        room = (self.shape.layers, model.layout.positions, rows)
        self.keys, self.values = np.zeros((2, *room, self.shape.kv_heads, self.shape.head_dim))
        self.used, self.used_from = np.zeros((2, *room, self.shape.hidden))
        self.cosine = np.full(room, np.nan)
        self.matrix = cache(lambda layer, name: dequantized(getattr(model.layers[layer], name)))
        self.head = dequantized(model.head)

    def step(self, tokens: np.ndarray, replay: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """tokens (rows,), replay (layers, rows) bool -> logits (rows, codes), TAS (layers, rows), else NaN."""
        x = self.model.embedding[tokens].astype(np.float64)
        tas = []
        for index, layer in enumerate(self.model.layers):
            mixed, score = self._attention(index, self._norm(x, layer.attention_gain) @ self.matrix(index, "qkv"))
            x = x + mixed @ self.matrix(index, "output")
            normed = self._norm(x, layer.mlp_gain)
            gate, up = np.split(normed @ self.matrix(index, "gate_up"), 2, axis=-1)
            used = (gate / (1 + np.exp(-gate)) * up) @ self.matrix(index, "down")
            earlier = self.position - self.before
            if earlier >= 0:
                before = self.used_from[index, earlier]
                norms = np.linalg.norm(normed, axis=-1) * np.linalg.norm(before, axis=-1)
                self.cosine[index, self.position] = (normed * before).sum(axis=-1) / norms
            if replay is not None and replay[index].any():
                used[replay[index]] = self.used[index, earlier][replay[index]]
                normed[replay[index]] = before[replay[index]]
            self.used[index, self.position], self.used_from[index, self.position] = used, normed
            x = x + used
            tas.append(score)
        self.position += 1
        return self._norm(x, self.model.final_gain) @ self.head, np.array(tas)

    def _norm(self, x: np.ndarray, gain: np.ndarray) -> np.ndarray:
        return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + self.shape.norm_eps) * gain

    def _attention(self, layer: int, qkv: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        c, rows = self.shape, len(qkv)
        heads = qkv.reshape(rows, -1, c.head_dim)
        straight, key, value = np.split(heads, [c.heads, c.heads + c.kv_heads], axis=1)
        q = self._turn(straight)
        self.keys[layer, self.position], self.values[layer, self.position] = self._turn(key), value
        past = slice(self.position + 1)
        mixed, tas = np.zeros((rows, c.heads, c.head_dim)), np.full((rows, c.heads), np.nan)
        for head in range(c.heads):
            kv = head // (c.heads // c.kv_heads)
            dots = (self.keys[layer, past, :, kv] * q[:, head]).sum(axis=-1) / c.head_dim**0.5
            weight = np.exp(dots - dots.max(axis=0))
            weight /= weight.sum(axis=0)
            mixed[:, head] = (weight[..., None] * self.values[layer, past, :, kv]).sum(axis=0)
            if self.position >= self.before:
                query = straight if self.model.tas_query == "pre_rope" else q
                earlier = self.keys[layer, self.position - self.before, :, kv]
                tas[:, head] = (query[:, head] * earlier).sum(-1) / c.head_dim**0.5
        reduction = {"mean": np.mean, "max": np.max, "min": np.min}[self.model.tas_heads]
        return mixed.reshape(rows, -1), reduction(tas, axis=1)

    def _turn(self, x: np.ndarray) -> np.ndarray:
        low, high = np.split(x, 2, axis=-1)
        pairs = np.arange(self.shape.head_dim // 2)
        angle = self.position * self.shape.rope_theta ** (-2 * pairs / self.shape.head_dim)
        turned = (low + 1j * high) * np.exp(1j * angle)
        return np.concatenate([turned.real, turned.imag], axis=-1)


def float_llama(model: IntegerModel) -> Llama:
    """The same weights in the float model; logits of what is no code are 0."""
    c = model.config
    llama = Llama(c, model.layout.positions)
    tensor = lambda x: torch.nn.Parameter(torch.from_numpy(np.ascontiguousarray(x)).float())
    transposed = lambda weights: dequantized(weights).T
    llama.model.embed_tokens.weight = tensor(model.embedding.astype(np.float32))
    llama.model.norm.weight = tensor(model.final_gain)
    head = np.zeros((c.vocab, c.hidden))
    head[model.layout.code_offset : model.layout.code_offset + model.layout.codes] = transposed(model.head)
    llama.lm_head.weight = tensor(head)
    for source, layer in zip(model.layers, llama.model.layers, strict=True):
        layer.input_layernorm.weight = tensor(source.attention_gain)
        layer.post_attention_layernorm.weight = tensor(source.mlp_gain)
        rows = [c.heads * c.head_dim, (c.heads + c.kv_heads) * c.head_dim]
        attention = layer.self_attn
        projections = (attention.q_proj, attention.k_proj, attention.v_proj)
        for projection, part in zip(projections, np.split(transposed(source.qkv), rows), strict=True):
            projection.weight = tensor(part)
        attention.o_proj.weight = tensor(transposed(source.output))
        layer.mlp.gate_proj.weight, layer.mlp.up_proj.weight = map(tensor, np.split(transposed(source.gate_up), 2))
        layer.mlp.down_proj.weight = tensor(transposed(source.down))
    return llama.eval().requires_grad_(False)
