"""One decode step of the whole model: the readable definition of what the graph and the overlay compute."""

from __future__ import annotations

import numpy as np

from .attention import AttentionScales, attention, quantize_heads
from .depth import TEXT, project_codes
from .keep import Keep, forget
from .linear import linear, quantize_rows
from .mlp import replay_mlp, replay_normed_mlp
from .norm import rms_norm
from .rope import rotate
from .sampling import guided_logits, sample
from .similarity import input_similarity, inputs_to_cache
from .tas import Pooling, replay_decision, temporal_attention_score
from .weights import IntegerModel, LayerWeights

__all__ = ["Arrays", "decode_step"]

Arrays = dict[str, np.ndarray]
ZERO_POINT = 128


def decode_step(model: IntegerModel, cos: np.ndarray, sin: np.ndarray, inputs: Arrays, keep: Keep = forget) -> Arrays:
    """Inputs and outputs by the names, types and shapes of the ONNX graph; bfloat16 as uint16 bits.

    cos and sin (positions, head_dim) float32 are the bundle's rotary tables; ``keep`` is called with every result.
    With a depth transformer a row reads its ``codes`` (rows, D) unless they are ``TEXT``, and there is ``hidden``
    (rows, hidden) float32 before the final norm, for ``predict_codes``, instead of code and logits.
    Where MLP inputs decide replay, ``mlp_input_cache`` takes the place of ``slot_before``, and there is ``mlp_input``.
    """
    x = _read(model, inputs)
    keep("embedding", x)
    turn = cos[inputs["position"]], sin[inputs["position"]]
    made = []
    for index in range(len(model.layers)):  # a name for the layer would hold it while the next is read
        x, outputs = _layer(model, index, model.layers[index], x, turn, inputs, keep)
        made.append(outputs)
    names = ("k", "v", "mlp_output", "tas", "replay", *(["mlp_input"] if model.criterion == "mlp-input" else []))
    stacked = {name: np.concatenate(parts) for name, parts in zip(names, zip(*made, strict=True), strict=True)}
    if model.depth is not None:
        return {"hidden": x, **stacked}
    normed = rms_norm(x, model.final_gain, model.config.norm_eps)
    keep("final.RMSNorm", normed)
    rows = linear(normed, model.head)
    keep("head", rows)
    conditional, unconditional = rows[inputs["conditional"]], rows[inputs["unconditional"]]
    logits = guided_logits(conditional, unconditional, inputs["guidance"])
    code = sample(logits, inputs["uniform"], inputs["inverse_temperature"], inputs["top_k"], inputs["top_p"])
    keep("logits", logits)
    keep("sample", code)
    return {"code": code, "logits": logits, **stacked}


def _read(model: IntegerModel, inputs: Arrays) -> np.ndarray:
    """(rows, hidden) float32: the embedding of a token, or the projected codes of the position before."""
    embedded = model.embedding[inputs["tokens"]].astype(np.float32)
    if model.depth is None:
        return embedded
    codes = inputs["codes"]
    return np.where(codes[:, :1] == TEXT, embedded, project_codes(model.depth, np.maximum(codes, 0)))


def _layer(
    model: IntegerModel,
    index: int,
    layer: LayerWeights,
    x: np.ndarray,
    turn: tuple[np.ndarray, np.ndarray],
    inputs: Arrays,
    keep: Keep,
) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
    config = model.config
    kept = lambda name, result: keep(f"layers.{index}.{name}", result)
    rows = slice(index * x.shape[0], (index + 1) * x.shape[0])  # of the stacked inputs
    normed = rms_norm(x, layer.attention_gain, config.norm_eps)
    kept("RMSNorm", normed)
    qkv = linear(normed, layer.qkv)
    kept("qkv", qkv)
    heads = qkv.reshape(x.shape[0], -1, config.head_dim)
    straight, value = np.split(heads, [config.heads + config.kv_heads], axis=1)
    head_scale = np.concatenate([layer.q_scale, layer.k_scale, layer.v_scale])
    integers = quantize_heads(np.concatenate([rotate(straight, *turn), value], axis=1), head_scale)
    q, k, v = np.split(integers, [config.heads, config.heads + config.kv_heads], axis=1)
    for part, heads in zip("qkv", (q, k, v), strict=True):
        kept(f"RotaryEmbedding.{part}", heads)

    k_cache, v_cache = (_signed(inputs[f"{part}_cache.{index}"]) for part in ("k", "v"))
    by_tas = model.criterion == "tas"
    if by_tas:
        tas_query = q
        if model.tas_query == "pre_rope":
            tas_query = quantize_heads(straight[:, : config.heads], layer.q_scale)
        k_before = k_cache[:, :, int(inputs["slot_before"])]
        score = temporal_attention_score(tas_query, k_before, layer.tas_multiplier, model.tas_heads)
        replay = _decided(score, index, rows, inputs)
        kept("TemporalAttentionScore", score)
        kept("ReplayDecision", replay)

    scales = AttentionScales.of(layer.q_scale, layer.k_scale, layer.v_scale, config.head_dim)
    mixed = quantize_rows(attention(q, k, v, k_cache, v_cache, inputs["mask"], scales))
    kept("Attention", mixed)
    x = x + linear(mixed, layer.output)
    kept("output", x)
    cached, inputs_used = inputs["replay_cache"][rows], ()
    if by_tas:
        used, to_cache = replay_mlp(x, replay, cached, layer, config.norm_eps, kept)
    else:
        normed, before = rms_norm(x, layer.mlp_gain, config.norm_eps), _signed(inputs["mlp_input_cache"][rows])
        score = input_similarity(normed.values, before)
        replay = _decided(score, index, rows, inputs)
        kept("InputSimilarity", score)
        kept("ReplayDecision", replay)
        used, to_cache = replay_normed_mlp(normed, replay, cached, layer, kept)
        inputs_used = (_unsigned(inputs_to_cache(normed.values, before, replay)),)
    x = x + used
    kept("ReplayMLP", x)
    return x, (_unsigned(k), _unsigned(v), to_cache, score, replay, *inputs_used)


def _decided(score: np.ndarray, index: int, rows: slice, inputs: Arrays) -> np.ndarray:
    return replay_decision(
        score,
        int(inputs["threshold"][index]),
        inputs["eligible"],
        inputs["age"][rows],
        int(inputs["max_age"]),
        Pooling(inputs["pool"], inputs["vote"]),
    )


def _signed(cache: np.ndarray) -> np.ndarray:
    return (cache.astype(np.int16) - ZERO_POINT).astype(np.int8)


def _unsigned(integers: np.ndarray) -> np.ndarray:
    return (integers.astype(np.int16) + ZERO_POINT).astype(np.uint8)
