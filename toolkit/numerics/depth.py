"""The depth transformer: from one hidden state of the backbone to the residual codes of a position, one after another.

Architecture: arXiv 2203.01941, section 3.2.2, as arXiv 2409.04429 uses it. No replay: it has no frame before.
"""

from __future__ import annotations

import numpy as np

from .attention import MASKED, AttentionScales, attention, quantize_heads
from .gelu import gelu
from .keep import Keep, forget
from .layer_norm import layer_norm
from .linear import linear, quantize_rows
from .norm import rms_norm
from .sampling import guided_logits, sample
from .weights import DepthBlockWeights, DepthWeights, IntegerModel

__all__ = ["TEXT", "DepthCache", "depth_logits", "embed_code", "embed_codes", "predict_codes", "project_codes"]

Arrays = dict[str, np.ndarray]
TEXT = -1  # in place of the codes: the row reads a token of the prompt; of a given code: none, it is sampled


def embed_code(codebook: np.ndarray, index: int, code: np.ndarray) -> np.ndarray:
    """codebook (books, codes, code_dim) float16, residual code ``index`` (rows,) -> float32 (rows, code_dim)."""
    return codebook[index % len(codebook), code].astype(np.float32)


def embed_codes(codebook: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """codes (rows, D) -> their embeddings' sum (rows, code_dim) float32: ((0 + e_0) + e_1) + ..., in this order."""
    total = np.zeros((len(codes), codebook.shape[2]), np.float32)
    for index, code in enumerate(codes.T):
        total = total + embed_code(codebook, index, code)
    return total


def project_codes(weights: DepthWeights, codes: np.ndarray) -> np.ndarray:
    """What the backbone reads in place of a token's embedding: codes (rows, D) -> (rows, backbone hidden) float32."""
    first, *more = weights.projector
    x = linear(quantize_rows(embed_codes(weights.codebook, codes)), first)
    for layer in more:
        x = linear(quantize_rows(gelu(x)), layer)
    return x


class DepthCache:
    """``k``, ``v`` (layers, rows, heads, D, head_dim) int8 of the depth positions of one position, 0 where not yet."""

    def __init__(self, weights: DepthWeights, rows: int) -> None:
        config = weights.config
        shape = (config.layers, rows, config.heads, config.codes_per_position, config.head_dim)
        self.k, self.v = np.zeros(shape, np.int8), np.zeros(shape, np.int8)


def depth_logits(
    weights: DepthWeights, x: np.ndarray, index: int, cache: DepthCache, keep: Keep = forget
) -> np.ndarray:
    """One depth position: its input x (rows, hidden) float32 -> logits (rows, codes) of residual code ``index``.

    The cache holds the depth positions before it, and takes in this one.
    """
    eps = weights.config.norm_eps
    x = x + weights.pos_emb[index]
    keep(f"depth.{index}.embedding", x)
    for layer, block in enumerate(weights.blocks):
        kept = lambda name, result, layer=layer: keep(f"depth.{index}.blocks.{layer}.{name}", result)
        x = x + _attention(weights, block, x, index, cache.k[layer], cache.v[layer], kept)
        kept("output", x)
        normed = layer_norm(x, block.mlp_gain, block.mlp_bias, eps)
        kept("LayerNorm.mlp", normed)
        hidden = quantize_rows(gelu(linear(normed, block.fc1)))
        kept("GELU", hidden)
        x = x + linear(hidden, block.fc2)
        kept("fc2", x)
    normed = layer_norm(x, weights.classifier_gain, weights.classifier_bias, eps)
    keep(f"depth.{index}.LayerNorm", normed)
    logits = linear(normed, weights.classifier)
    keep(f"depth.{index}.classifier", logits)
    return logits


def _attention(
    weights: DepthWeights,
    block: DepthBlockWeights,
    x: np.ndarray,
    index: int,
    k_cache: np.ndarray,
    v_cache: np.ndarray,
    kept: Keep,
) -> np.ndarray:
    """The attention branch (rows, hidden); the block's caches (rows, heads, D, head_dim) take in k and v."""
    config, rows = weights.config, len(x)
    normed = layer_norm(x, block.attention_gain, block.attention_bias, config.norm_eps)
    kept("LayerNorm.attention", normed)
    qkv = linear(normed, block.qkv)
    kept("qkv", qkv)
    heads = qkv.reshape(rows, 3 * config.heads, config.head_dim)
    integers = quantize_heads(heads, np.concatenate([block.q_scale, block.k_scale, block.v_scale]))
    q, k, v = np.split(integers, 3, axis=1)
    for part, values in zip("qkv", (q, k, v), strict=True):
        kept(f"heads.{part}", values)
    slots = np.arange(config.codes_per_position)
    mask = np.broadcast_to(np.where(slots < index, np.int32(0), MASKED), (rows, slots.size))
    scales = AttentionScales.of(block.q_scale, block.k_scale, block.v_scale, config.head_dim)
    mixed = quantize_rows(attention(q, k, v, k_cache, v_cache, mask, scales))
    kept("Attention", mixed)
    k_cache[:, :, index], v_cache[:, :, index] = k, v
    return linear(mixed, block.output)


def predict_codes(model: IntegerModel, hidden: np.ndarray, inputs: Arrays, keep: Keep = forget) -> Arrays:
    """``code`` (clips, D) int64 and ``logits`` (clips, D, codes) float32, after guidance, of one position.

    hidden (rows, backbone hidden) float32: the residual stream before the final norm. inputs, by the names of the ONNX
    graph: uniform (clips, D), given (clips, D) int64 (``TEXT``: sample, else the code to go on with), conditional,
    unconditional, guidance, inverse_temperature, top_k, top_p. All rows of a clip go on with the same code.
    """
    weights, clips = model.depth, len(inputs["uniform"])
    cache = DepthCache(weights, len(hidden))
    normed = rms_norm(hidden, model.final_gain, model.config.norm_eps)
    keep("final.RMSNorm", normed)
    x = linear(normed, weights.in_mlp_2)
    total = np.zeros((len(hidden), weights.config.code_dim), np.float32)
    codes, logits = [], []
    for index in range(weights.config.codes_per_position):
        rows = depth_logits(weights, x, index, cache, keep)
        guided = guided_logits(rows[inputs["conditional"]], rows[inputs["unconditional"]], inputs["guidance"])
        settings = (inputs[name] for name in ("inverse_temperature", "top_k", "top_p"))
        sampled = sample(guided, inputs["uniform"][:, index], *settings)
        given = inputs["given"][:, index]
        code = np.where(given == TEXT, sampled, given)
        keep(f"depth.{index}.logits", guided)
        keep(f"depth.{index}.sample", code)
        codes.append(code)
        logits.append(guided)
        total = total + embed_code(weights.codebook, index, np.tile(code, len(hidden) // clips))
        x = linear(quantize_rows(total), weights.in_mlp_1)
    return {"code": np.stack(codes, axis=1), "logits": np.stack(logits, axis=1)}
