"""Golden starts of the whole engine: a clip of a small random model, step by step, by the NumPy reference.

The file has the form of the kernels' golden vectors (``golden.py``): a case with program and weights, then one a start
with what the host writes before it and finds behind it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np

from ..export.overlay.compile import pack_model
from ..toolkit.backends.engine_memory import control_settings
from ..toolkit.backends.protocol import next_read
from ..toolkit.backends.reference import ReferenceBackend
from ..toolkit.config import PADDING, DepthConfig
from ..toolkit.numerics.rope import rotary_tables
from ..toolkit.numerics.tas import NEVER
from ..toolkit.numerics.weights import DepthBlockWeights, DepthWeights, IntegerModel, LayerWeights, LinearWeights
from ..toolkit.program.engine import EngineConfig
from ..toolkit.program.memory import StateLayout
from ..toolkit.program.packed import Packed
from ..toolkit.program.registers import CONTROL, FLAG_LOGITS, FLAG_REASSIGN, FLAG_TEACHER, GIVEN
from ..toolkit.settings import FULL_ATTENTION, ReplaySettings, SamplingSettings
from .engine_bench import INT4, BenchModel, bench_model
from .golden import Arrays, encoded

__all__ = ["engine_cases", "write_engine_golden"]

SEED = 45  # a clip in which rows replay alone and together
REPLAY = ReplaySettings()


def write_engine_golden(path: Path, engine: EngineConfig) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encoded("engine", engine_cases(engine)))


def engine_cases(engine: EngineConfig) -> dict[str, Arrays]:
    """Arrays by case; the same at every call, but for the build id in the program."""
    bench = bench_model(engine)
    rng = np.random.default_rng(SEED)
    model = _model(rng, bench)
    packed = pack_model(model, engine)
    return {"model": {"program": packed.program, "weights": packed.weights}, **dict(_starts(rng, bench, model, packed))}


def _starts(
    rng: np.random.Generator, bench: BenchModel, model: IntegerModel, packed: Packed
) -> Iterator[tuple[str, Arrays]]:
    layout, frames = bench.state, bench.layout
    sampling = SamplingSettings(temperature=0.9, top_k=6, top_p=0.95, guidance=2.0 if bench.rows == 2 else 1.0)
    prompt = rng.integers(0, frames.code_offset, (bench.rows, frames.prompt_length))
    prompt[1:, 0] = PADDING  # the second row's prompt is shorter by one
    padding = (prompt == PADDING).sum(axis=1)
    each = () if bench.depth is None else (bench.depth.codes_per_position,)
    uniforms = rng.integers(0, 1 << 24, (frames.frames, frames.tokens_per_frame, 1, *each))
    control = control_settings(layout, sampling, REPLAY, FULL_ATTENTION) | {
        "descriptors": len(packed.program),
        "weight_beats": len(packed.weights),
        "steps": 1,
        "padding": int(padding.max()),
    }
    reference = ReferenceBackend(model, *rotary_tables(model.config, frames.positions))
    thresholds = _thresholds(reference, sampling, prompt, uniforms)
    reference.start(1, frames.positions, sampling, REPLAY)

    def case(position: int, flags: int, tokens: np.ndarray, uniform: np.ndarray, limits: np.ndarray) -> Arrays:
        """tokens (rows,), or codes (rows, D)."""
        texts = 1 if tokens.ndim == 1 else 0
        words = CONTROL.pack(**control, position=position, flags=flags | FLAG_LOGITS, texts=texts)
        read = np.maximum(tokens, 0)
        if each and texts:
            read = np.tile(read[:, None], each)  # of a row's words the first counts
        host = {"tokens": read, "uniforms": uniform, "thresholds": limits, "padding": padding}
        parts = {"starts": np.array([bench.starts]), **_parts(layout)}
        return {"control": words, **parts, **{name: np.asarray(array) for name, array in host.items()}}

    never = np.full(model.config.layers, NEVER, np.int64)
    following = rng.integers(0, frames.codes, (1, frames.prompt_length - 1, *each)) if each else None
    for position, logits in enumerate(reference.score(prompt[:, :-1], following)):
        given = np.zeros(1, np.int64) if following is None else GIVEN + following[:, position]
        arrays = case(position, FLAG_TEACHER, prompt[:, position], given, never)
        yield f"prompt {position}", arrays | {"logits": logits}
    tokens = prompt[:, -1]
    for frame in range(frames.frames):
        record = reference.decode(tokens, uniforms[frame], thresholds)
        for step in range(len(record.codes)):
            arrays = case(record.first + step, FLAG_REASSIGN, tokens, uniforms[frame, step], thresholds)
            masks = (record.replay[step] << np.arange(bench.rows)).sum(axis=1)
            found = {"codes": record.codes[step], "scores": record.scores[step], "replay": masks}
            yield f"frame {frame}, place {step}", arrays | found | {"logits": record.logits[step]}
            tokens = next_read(record.first + step, record.codes[step], bench.rows, frames, bench.depth)


def _thresholds(
    reference: ReferenceBackend, sampling: SamplingSettings, prompt: np.ndarray, uniforms: np.ndarray
) -> np.ndarray:
    """Of each layer, what half of the scores of the later frames exceed in a run without replay."""
    never = np.full(reference.config.layers, NEVER, np.int64)
    reference.start(1, reference.layout.positions, sampling, REPLAY)
    reference.prefill(prompt[:, :-1])
    tokens, scores = prompt[:, -1], []
    for frame in uniforms:
        record = reference.decode(tokens, frame, never)
        last = record.first + len(frame) - 1
        tokens = next_read(last, record.codes[-1], len(prompt), reference.layout, reference.depth)
        scores.append(record.scores)
    return np.median(np.concatenate(scores[1:]), axis=(0, 2)).astype(np.int64)


def _parts(layout: StateLayout) -> Arrays:
    """Beats of the parts of what the host writes and reads, in order."""
    inputs, outputs = layout.input_parts, layout.output_parts
    return {"input_beats": np.array([*inputs.values()]), "output_beats": np.array([*outputs.values()])}


def _model(rng: np.random.Generator, bench: BenchModel) -> IntegerModel:
    """Random weights whose products with activations of unit size have about unit size."""
    config = bench.config
    layers = tuple(_layer(rng, bench) for _ in range(config.layers))
    embedding = rng.normal(0, 1, (config.vocab, config.hidden)).astype(np.float16)
    gain = _gain(rng, config.hidden)
    depth = head = None
    if bench.depth is None:
        head = _linear(rng, "head", config.hidden, bench.layout.codes)
    else:
        depth = _depth(rng, bench, bench.depth)
    return IntegerModel(config, bench.layout, embedding, layers, gain, head, "post_rope", depth=depth)


def _depth(rng: np.random.Generator, bench: BenchModel, depth: DepthConfig) -> DepthWeights:
    hidden, codes = bench.config.hidden, bench.layout.codes
    widths = (depth.code_dim, *[hidden] * depth.projector_layers)
    return DepthWeights(
        config=depth,
        codebook=rng.normal(0, 1, (depth.books, codes, depth.code_dim)).astype(np.float16),
        projector=tuple(_linear(rng, "projector", *pair, biased=True) for pair in pairwise(widths)),
        in_mlp_1=_linear(rng, "in_mlp_1", depth.code_dim, depth.hidden, biased=True),
        in_mlp_2=_linear(rng, "in_mlp_2", hidden, depth.hidden, biased=True),
        pos_emb=rng.normal(0, 0.5, (depth.codes_per_position, depth.hidden)).astype(np.float32),
        blocks=tuple(_block(rng, depth) for _ in range(depth.layers)),
        classifier_gain=_gain(rng, depth.hidden),
        classifier_bias=_bias(rng, depth.hidden),
        classifier=_linear(rng, "classifier", depth.hidden, codes, biased=True),
    )


def _block(rng: np.random.Generator, depth: DepthConfig) -> DepthBlockWeights:
    hidden = depth.hidden
    scales = {f"{part}_scale": rng.uniform(0.02, 0.04, depth.heads).astype(np.float32) for part in "qkv"}
    return DepthBlockWeights(
        attention_gain=_gain(rng, hidden),
        attention_bias=_bias(rng, hidden),
        qkv=_linear(rng, "qkv", hidden, 3 * hidden, biased=True),
        output=_linear(rng, "output", hidden, hidden, biased=True),
        mlp_gain=_gain(rng, hidden),
        mlp_bias=_bias(rng, hidden),
        fc1=_linear(rng, "fc1", hidden, depth.mlp, biased=True),
        fc2=_linear(rng, "fc2", depth.mlp, hidden, biased=True),
        **scales,
    )


def _layer(rng: np.random.Generator, bench: BenchModel) -> LayerWeights:
    config = bench.config
    heads, kv, inner = config.heads, config.kv_heads, config.heads * config.head_dim
    multiplier = rng.integers(60, 128, heads).astype(np.int32)
    k_scale, tas_scale = np.full(kv, 0.05, np.float32), 2.5e-5
    return LayerWeights(
        attention_gain=_gain(rng, config.hidden),
        qkv=_linear(rng, "qkv", config.hidden, (heads + 2 * kv) * config.head_dim, config.attention_bias),
        q_scale=(multiplier * tas_scale / np.repeat(k_scale, heads // kv)).astype(np.float32),
        k_scale=k_scale,
        v_scale=np.full(kv, 0.05, np.float32),
        tas_multiplier=multiplier,
        tas_scale=tas_scale,
        output=_linear(rng, "output", inner, config.hidden, config.attention_bias),
        mlp_gain=_gain(rng, config.hidden),
        gate_up=_linear(rng, "gate_up", config.hidden, 2 * config.mlp),
        down=_linear(rng, "down", config.mlp, config.hidden),
    )


def _gain(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.uniform(0.5, 1.5, n).astype(np.float32)


def _bias(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.normal(0, 0.2, n).astype(np.float32)


def _linear(rng: np.random.Generator, name: str, inputs: int, outputs: int, biased: bool = False) -> LinearWeights:
    if name in INT4:  # one group of 32 inputs
        values, multiplier, deviation = rng.integers(-7, 8, (inputs, outputs)), rng.integers(1, 19, (1, outputs)), 47.0
        multiplier = multiplier.astype(np.uint8)
    else:
        values, multiplier, deviation = rng.integers(-127, 128, (inputs, outputs)), None, 73.0
    scale = rng.uniform(0.75, 1.25, outputs) / (deviation * np.sqrt(inputs))
    bias = rng.normal(0, 0.5, outputs).astype(np.float32) if biased else None
    return LinearWeights(values.astype(np.int8), scale.astype(np.float32), multiplier, bias)
