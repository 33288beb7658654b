"""Golden vectors of the kernels' test benches, made by the NumPy reference and written for C++ to read.

A file is ``FCGOLDEN``, the kernel's name, the number of cases; a case its name, the number of arrays; an array its
name, its type as NumPy spells it (``<f4``, ``|i1``), the number of items, the items. Texts are their length and bytes,
numbers uint32, all little-endian; arrays are flat, their shapes follow from the case's scalars.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ..export.overlay.weights import pack_linear
from ..toolkit.config import TAS_HEADS
from ..toolkit.numerics.attention import MASKED, AttentionScales, attention, quantize_heads
from ..toolkit.numerics.bfloat16 import to_bfloat16
from ..toolkit.numerics.gelu import gelu
from ..toolkit.numerics.layer_norm import layer_norm
from ..toolkit.numerics.linear import QuantizedRows, linear, quantize_rows
from ..toolkit.numerics.mlp import swiglu
from ..toolkit.numerics.norm import rms_norm
from ..toolkit.numerics.rope import rotate
from ..toolkit.numerics.sampling import guided_logits, sample
from ..toolkit.numerics.tas import Pooling, replay_decision, temporal_attention_score
from ..toolkit.numerics.weights import LinearWeights
from ..toolkit.program.registers import POLICY_CODES

__all__ = ["KERNELS", "encoded", "golden_cases", "write_golden"]

MAGIC = b"FCGOLDEN"
SLOTS = 256  # of the attention cases
Arrays = dict[str, np.ndarray]
Cases = Iterator[tuple[str, Arrays]]


def write_golden(folder: Path, kernels: tuple[str, ...] | None = None) -> dict[str, Path]:
    """``<kernel>.golden`` for each kernel (default: all) into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = {kernel: folder / f"{kernel}.golden" for kernel in kernels or tuple(KERNELS)}
    for kernel, path in paths.items():
        path.write_bytes(encoded(kernel, golden_cases(kernel)))
    return paths


def encoded(kernel: str, cases: dict[str, Arrays]) -> bytes:
    parts = [MAGIC, _text(kernel), struct.pack("<I", len(cases))]
    return b"".join(parts + [_case(name, arrays) for name, arrays in cases.items()])


def golden_cases(kernel: str) -> dict[str, Arrays]:
    """Arrays by case; the same at every call."""
    seed = int.from_bytes(kernel.encode(), "little")
    return dict(KERNELS[kernel](np.random.default_rng(seed)))


def _case(name: str, arrays: Arrays) -> bytes:
    parts = [_text(name), struct.pack("<I", len(arrays))]
    for key, array in arrays.items():
        flat = np.ascontiguousarray(array).reshape(-1)
        flat = flat.astype(flat.dtype.newbyteorder("<"))
        parts += [_text(key), _text(flat.dtype.str), struct.pack("<I", flat.size), flat.tobytes()]
    return b"".join(parts)


def _text(text: str) -> bytes:
    return struct.pack("<I", len(text.encode())) + text.encode()


def _scalars(**values: float) -> Arrays:
    """Integers as int64, the rest as float32."""
    return {key: np.array([value], np.int64 if isinstance(value, int) else np.float32) for key, value in values.items()}


def _bytes(rng: np.random.Generator, shape: tuple[int, ...], low: int = -128) -> np.ndarray:
    return rng.integers(low, 128, shape).astype(np.int8)


def _normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def _quantize_rows(rng: np.random.Generator) -> Cases:
    for n in (1, 16, 50, 128):
        x = _normal(rng, 1, n) * np.float32(10.0 ** rng.integers(-8, 8))
        yield f"row of {n}", {"x": x, **_row(quantize_rows(x))}


def _row(row: QuantizedRows) -> Arrays:
    return {"values": row.values, "scale": row.scale}


def _rms_norm(rng: np.random.Generator) -> Cases:
    for n in (16, 100, 512):
        for eps in (1e-5, 1e-6):
            x, gain = _normal(rng, 1, n) * np.float32(rng.uniform(0.001, 30)), _normal(rng, n)
            yield f"row of {n}, eps {eps}", {"x": x, "gain": gain, **_scalars(eps=eps), **_row(rms_norm(x, gain, eps))}


def _layer_norm(rng: np.random.Generator) -> Cases:
    for n in (16, 100, 512):
        for mean in (0, 20):
            x, gain, bias = _normal(rng, 1, n) + np.float32(mean), _normal(rng, n), _normal(rng, n)
            arrays = {"x": x, "gain": gain, "bias": bias, **_scalars(eps=1e-5)}
            yield f"row of {n}, mean {mean}", arrays | _row(layer_norm(x, gain, bias, 1e-5))


def _swiglu(rng: np.random.Generator) -> Cases:
    gate, up = _normal(rng, 2000) * np.float32(6), _normal(rng, 2000)
    yield "random", {"gate": gate, "up": up, "y": swiglu(gate, up)}
    edges = np.array([-40, -16, -15.9998, 0, 15.9998, 16, 40, 1e6], np.float32)
    yield "edges", {"gate": edges, "up": up[: edges.size], "y": swiglu(edges, up[: edges.size])}


def _gelu(rng: np.random.Generator) -> Cases:
    x = _normal(rng, 2000) * np.float32(5)
    yield "random", {"x": x, "y": gelu(x)}
    edges = np.array([-40, -16, -15.9998, 0, 15.9998, 16, 40, 1e6], np.float32)
    yield "edges", {"x": edges, "y": gelu(edges)}


def _rotary_embedding(rng: np.random.Generator) -> Cases:
    for heads, turned, head_dim in ((1, 1, 16), (4, 3, 48), (12, 8, 64)):
        x, angle = _normal(rng, 1, heads, head_dim), rng.uniform(0, 6.3, (1, head_dim // 2))
        cos = np.cos(np.tile(angle, 2)).astype(np.float32)
        sin = np.concatenate([-np.sin(angle), np.sin(angle)], axis=1).astype(np.float32)
        scale = rng.uniform(0.015, 0.03, heads).astype(np.float32)  # the largest values are clipped
        values = quantize_heads(np.concatenate([rotate(x[:, :turned], cos, sin), x[:, turned:]], axis=1), scale)
        arrays = {"x": x, "cos": cos, "sin": sin, "scale": scale, "values": values}
        yield f"{heads} heads of {head_dim}", arrays | _scalars(heads=heads, turned=turned, head_dim=head_dim)


def _quant_linear(rng: np.random.Generator) -> Cases:
    shapes = [(16, 8, None), (100, 40, None), (96, 48, 32), (128, 40, 64), (160, 75, 160), (192, 96, None)]
    biased = (False, True, True, False, True, True)
    for (inputs, outputs, group), rows, has_bias in zip(shapes, (1, 2, 5, 10, 32, 32), biased, strict=True):
        index, reassign = int(rng.integers(1, 1 << rows)), int(rng.integers(2))
        scale = rng.uniform(1e-4, 1e-2, outputs).astype(np.float32)
        values = rng.integers(-127, 128, (inputs, outputs)) if group is None else rng.integers(-7, 8, (inputs, outputs))
        multiplier = None if group is None else rng.integers(1, 19, (inputs // group, outputs)).astype(np.uint8)
        bias = _normal(rng, outputs) if has_bias else None
        weights = LinearWeights(values.astype(np.int8), scale, multiplier, bias)
        x = QuantizedRows(_bytes(rng, (rows, inputs), -127), rng.uniform(0.01, 1, (rows, 1)).astype(np.float32))
        shape = _scalars(inputs=inputs, outputs=outputs, int4=int(group is not None), bias=int(has_bias), rows=rows)
        arrays = {"stream": pack_linear(weights), "x": x.values, "x_scale": x.scale, "y": linear(x, weights)}
        yield (
            f"{outputs} x {inputs}, group {group}{', bias' * has_bias}",
            shape | arrays | _scalars(index=index, reassign=reassign),
        )


def _attention(rng: np.random.Generator) -> Cases:
    plain = ((0, 0, 0), (1, 0, 0), (16, 4, 8), (17, 0, 0), (200, 0, 0), (200, 4, 64))
    columns = ((200, 4, 30, 4, 33, 7), (200, 0, 1, 64, 5, 20))
    for sight in (*((*runs, 0, 1, 0) for runs in plain), *columns):
        for group, head_dim in ((1, 16), (4, 48), (8, 64)):
            q, k, v = _bytes(rng, (1, group, head_dim)), _bytes(rng, (1, 1, head_dim)), _bytes(rng, (1, 1, head_dim))
            k_past, v_past = _bytes(rng, (1, 1, SLOTS, head_dim)), _bytes(rng, (1, 1, SLOTS, head_dim))
            q_scale, k_scale = rng.uniform(0.005, 0.03, group), rng.uniform(0.005, 0.03, 1)
            v_scale = rng.uniform(0.005, 0.03, 1).astype(np.float32)
            scales = AttentionScales.of(q_scale, k_scale, v_scale, head_dim)
            mask = np.where(_seen(*sight), 0, MASKED).astype(np.int32)[None]
            shape = _scalars(**_named(sight), group=group, head_dim=head_dim)
            arrays = {"q": q, "k": k, "v": v, "k_past": k_past, "v_past": v_past, "exponent": scales.exponent}
            arrays |= {"v_scale": v_scale, "y": attention(q, k, v, k_past, v_past, mask, scales)}
            yield f"{_described(sight)}, group {group}, head_dim {head_dim}", shape | arrays


def _seen(
    position: int, sinks: int, window: int, columns: int, places: int, first: int, padding: int = 0
) -> np.ndarray:
    """(SLOTS,) bool: the slots before ``position`` that are sinks, in the window (0: none), or the same of ``places``
    in the last ``columns`` frames, the first of which begins at slot ``first``. None of the first ``padding``, behind
    which the sinks begin."""
    slot = np.arange(SLOTS)
    frames, rest = np.divmod(position - slot, places)
    column = (slot >= first) & (rest == 0) & (frames <= columns)
    runs = (slot < padding + sinks) | (slot >= position - (window or position))
    return (slot < position) & (runs & (slot >= padding) | column)


SIGHT = ("position", "sinks", "window", "columns", "places", "first")


def _named(sight: tuple[int, ...]) -> dict[str, int]:
    return dict(zip(SIGHT, sight, strict=True))


def _described(sight: tuple[int, ...]) -> str:
    return ", ".join(f"{name} {value}" for name, value in _named(sight).items())


def _visible(rng: np.random.Generator) -> Cases:
    plain = ((0, 0, 0), (40, 0, 0), (64, 4, 16), (200, 20, 33), (200, 0, 1), (10, 300, 5))
    columns = ((200, 20, 33, 3, 40, 25), (200, 3, 1, 64, 3, 50), (60, 0, 1, 5, 64, 1))
    for sight in (*((*runs, 0, 1, 0) for runs in plain), *columns):
        for padding in (0, 1, 17):
            seen = _seen(*sight, padding).astype(np.uint8)
            named = _scalars(**_named(sight), padding=padding)
            yield f"{_described(sight)}, padding {padding}", {"seen": seen, **named}


def _temporal_attention_score(rng: np.random.Generator) -> Cases:
    for heads, kv_heads, head_dim in ((1, 1, 16), (8, 2, 48), (10, 10, 64), (32, 4, 128)):
        q, k_before = _bytes(rng, (1, heads, head_dim)), _bytes(rng, (1, kv_heads, head_dim))
        multiplier = rng.integers(-127 if heads == 10 else 1, 128, heads).astype(np.int32)
        shape = _scalars(heads=heads, kv_heads=kv_heads, head_dim=head_dim)
        for reduction, tas_heads in enumerate(TAS_HEADS):  # in the order of HeadReduction
            arrays = {"q": q, "k_before": k_before, "multiplier": multiplier, **_scalars(reduction=reduction)}
            arrays["score"] = temporal_attention_score(q, k_before, multiplier, tas_heads)
            yield f"{tas_heads} of {heads} heads of {head_dim}", arrays | shape


def _replay_decision(rng: np.random.Generator) -> Cases:
    for policy, code in POLICY_CODES.items():
        for rows in (1, 2, 10, 32):
            for lift in (0, 800):
                score = rng.integers(-300, 1000, rows) + lift
                age, max_age, threshold = rng.integers(0, 2, rows), 1 + lift // 400, 100
                eligible = np.ones(rows, np.bool_)
                replays = replay_decision(score, threshold, eligible, age, max_age, Pooling.of(policy, rows))
                arrays = {"score": score, "age": age, "replays": replays.astype(np.uint8)}
                scalars = _scalars(threshold=threshold, max_age=max_age, eligible=1, policy=code)
                yield f"{policy}, rows {rows}, lift {lift}", arrays | scalars


def _replay_mlp(rng: np.random.Generator) -> Cases:
    x = _normal(rng, 800) * np.float32(10.0) ** rng.integers(-10, 10, 800).astype(np.float32)
    yield "random", {"x": x, "bits": to_bfloat16(x)}


def _sample(rng: np.random.Generator) -> Cases:
    for codes, top_k, top_p in ((8, 1, 65536), (100, 100, 65536), (1000, 50, 60000), (4096, 4096, 52429)):
        conditional, unconditional = _normal(rng, 1, codes) * np.float32(3), _normal(rng, 1, codes)
        logits = guided_logits(conditional, unconditional, 1.5)
        uniforms = rng.integers(0, 1 << 24, 6)
        chosen = sample(np.repeat(logits, uniforms.size, axis=0), uniforms, 1 / 0.9, top_k, top_p)
        arrays = {"conditional": conditional, "unconditional": unconditional, "logits": logits, "uniforms": uniforms}
        settings = _scalars(guidance=1.5, inverse_temperature=1 / 0.9, top_k=top_k, top_p=top_p)
        yield f"codes {codes}, top_k {top_k}, top_p {top_p}", arrays | {"codes": chosen} | settings


def _drs(rng: np.random.Generator) -> Cases:
    """Items in the order they are dealt: pair by pair, the rows that take part round and round."""
    for rows, pairs, groups in ((1, 4, 3), (5, 4, 8), (10, 3, 8), (32, 4, 16)):
        for reassign in (0, 1):
            index = int(rng.integers(1, 1 << rows))
            computes = (index >> np.arange(rows) & 1).astype(np.bool_)
            dealt = np.flatnonzero(computes) if reassign else np.arange(rows)
            row, pair = np.tile(dealt, pairs), np.repeat(np.arange(pairs), dealt.size)
            scalars = _scalars(rows=rows, pairs=pairs, groups=groups, index=index, reassign=reassign)
            arrays = {"row": row, "pair": pair, "busy": computes[row].astype(np.uint8)}
            yield f"rows {rows}, groups {groups}, reassign {reassign}", arrays | scalars


def _processing_group(rng: np.random.Generator) -> Cases:
    for number in range(50):
        weights, x, x_unsigned = _bytes(rng, (2, 16)), _bytes(rng, (16,)), number % 2
        operand = (x.view(np.uint8) if x_unsigned else x).astype(np.int64)
        arrays = {"weights0": weights[0], "weights1": weights[1], "x": x, "sums": weights.astype(np.int64) @ operand}
        yield f"number {number}", arrays | _scalars(x_unsigned=x_unsigned)


def _float32(rng: np.random.Generator) -> Cases:
    x = np.concatenate([_normal(rng, 2000) * np.float32(1000), np.arange(-50, 50, dtype=np.float32) + np.float32(0.5)])
    half = rng.integers(0, 31 << 10, x.size).astype(np.uint16) | (rng.integers(0, 2, x.size) << 15).astype(np.uint16)
    arrays = {"x": x, "rounded": np.rint(x).astype(np.int64), "root": np.sqrt(np.abs(x)), "bfloat16": to_bfloat16(x)}
    yield "random", arrays | {"half": half, "of_half": half.view(np.float16).astype(np.float32)}


KERNELS = {
    "attention": _attention,
    "drs": _drs,
    "float32": _float32,
    "gelu": _gelu,
    "layer_norm": _layer_norm,
    "processing_group": _processing_group,
    "quant_linear": _quant_linear,
    "quantize_rows": _quantize_rows,
    "replay_decision": _replay_decision,
    "replay_mlp": _replay_mlp,
    "rms_norm": _rms_norm,
    "rotary_embedding": _rotary_embedding,
    "sample": _sample,
    "swiglu": _swiglu,
    "temporal_attention_score": _temporal_attention_score,
    "visible": _visible,
}
"""The cases of each kernel, by the name of its header and test bench."""
