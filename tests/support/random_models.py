"""Integer models with random weights, of sizes that fit no tile, and clips run on them."""

from __future__ import annotations

import hashlib
import itertools
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
import onnx_ir as ir

from fastcar.export.lower.depth import lower_depth
from fastcar.export.lower.graph import lower_backbone
from fastcar.export.quantize.head_weights import weigh_heads
from fastcar.toolkit.backends.onnxruntime import OnnxRuntimeBackend
from fastcar.toolkit.backends.protocol import FrameRecord, SteppingBackend, next_read
from fastcar.toolkit.backends.reference import ReferenceBackend
from fastcar.toolkit.bundle.tensor_file import stored_tensors, write_tensors
from fastcar.toolkit.bundle.tensors import model_tensors
from fastcar.toolkit.config import PADDING, BackboneConfig, DepthConfig, FrameLayout
from fastcar.toolkit.numerics.rope import rotary_tables
from fastcar.toolkit.numerics.tas import NEVER
from fastcar.toolkit.numerics.weights import (
    DepthBlockWeights,
    DepthWeights,
    IntegerModel,
    LayerWeights,
    LinearWeights,
)
from fastcar.toolkit.settings import FULL_ATTENTION, AttentionSettings, ReplaySettings, SamplingSettings

PROMPT, CODES = 3, 37


def config(**changes: int) -> BackboneConfig:
    sizes = {"hidden": 48, "layers": 3, "heads": 6, "kv_heads": 2, "head_dim": 10, "mlp": 52, "vocab": 7 + CODES}
    return BackboneConfig(**(sizes | changes))


def layout(**changes: object) -> FrameLayout:
    sizes = {"prompt_length": PROMPT, "frames": 4, "grid": (2, 3), "code_offset": 7, "codes": CODES}
    return FrameLayout(**(sizes | changes))


def depth_config(**changes: object) -> DepthConfig:
    sizes = {"hidden": 28, "layers": 2, "heads": 4, "mlp": 60, "codes_per_position": 3, "code_dim": 12}
    return DepthConfig(**(sizes | {"projector_layers": 2} | changes))


def random_linear(
    rng: np.random.Generator, inputs: int, outputs: int, group: int | None = None, bias: bool = False
) -> LinearWeights:
    """Weights whose products with unit activations have about unit size."""
    if group is None:
        values, multiplier, deviation = rng.integers(-127, 128, (inputs, outputs)), None, 73.0
    else:
        values = rng.integers(-7, 8, (inputs, outputs))
        multiplier, deviation = rng.integers(1, 19, (inputs // group, outputs)).astype(np.uint8), 47.0
    scale = rng.uniform(0.75, 1.25, outputs) / (deviation * np.sqrt(inputs))
    shift = rng.normal(0, 0.3, outputs).astype(np.float32) if bias else None
    return LinearWeights(values.astype(np.int8), scale.astype(np.float32), multiplier, shift)


def random_layer(rng: np.random.Generator, shape: BackboneConfig, groups: dict[str, int]) -> LayerWeights:
    """groups: linear layer -> group size; a layer that is not named has 8 bits."""
    heads, kv, inner = shape.heads, shape.kv_heads, shape.heads * shape.head_dim
    multiplier = rng.integers(60, 128, heads).astype(np.int32)
    k_scale = rng.uniform(0.045, 0.055, kv).astype(np.float32)
    tas_scale = 0.05 * 0.05 / 100
    q_scale = (multiplier * tas_scale / np.repeat(k_scale, heads // kv)).astype(np.float32)
    make = lambda name, inputs, outputs: random_linear(rng, inputs, outputs, groups.get(name), shape.has_bias(name))
    return LayerWeights(
        attention_gain=rng.uniform(0.5, 1.5, shape.hidden).astype(np.float32),
        qkv=make("qkv", shape.hidden, (heads + 2 * kv) * shape.head_dim),
        q_scale=q_scale,
        k_scale=k_scale,
        v_scale=rng.uniform(0.045, 0.055, kv).astype(np.float32),
        tas_multiplier=multiplier,
        tas_scale=tas_scale,
        output=make("output", inner, shape.hidden),
        mlp_gain=rng.uniform(0.5, 1.5, shape.hidden).astype(np.float32),
        gate_up=make("gate_up", shape.hidden, 2 * shape.mlp),
        down=make("down", shape.mlp, shape.hidden),
    )


def random_depth_block(rng: np.random.Generator, shape: DepthConfig, group: int | None) -> DepthBlockWeights:
    hidden = shape.hidden
    make = lambda inputs, outputs: random_linear(rng, inputs, outputs, group, bias=True)
    gain = lambda: rng.uniform(0.5, 1.5, hidden).astype(np.float32)
    bias = lambda: rng.normal(0, 0.2, hidden).astype(np.float32)
    scales = {f"{part}_scale": rng.uniform(0.02, 0.04, shape.heads).astype(np.float32) for part in "qkv"}
    linears = {"qkv": make(hidden, 3 * hidden), "output": make(hidden, hidden)}
    linears |= {"fc1": make(hidden, shape.mlp), "fc2": make(shape.mlp, hidden)}
    return DepthBlockWeights(gain(), bias(), mlp_gain=gain(), mlp_bias=bias(), **linears, **scales)


def random_depth(
    hidden: int, codes: int, shape: DepthConfig | None = None, group: int | None = None, seed: int = 0
) -> DepthWeights:
    """For a backbone of ``hidden``; ``group``: of the blocks' 4-bit weights, None for 8 bits."""
    rng, shape = np.random.default_rng([seed, 1]), shape or depth_config()
    books = 1 if shape.shared_codebook else shape.codes_per_position
    widths = (shape.code_dim, *[hidden] * shape.projector_layers)
    eight = lambda inputs, outputs: random_linear(rng, inputs, outputs, bias=True)
    return DepthWeights(
        config=shape,
        codebook=rng.normal(0, 1, (books, codes, shape.code_dim)).astype(np.float16),
        projector=tuple(eight(*pair) for pair in itertools.pairwise(widths)),
        in_mlp_1=eight(shape.code_dim, shape.hidden),
        in_mlp_2=eight(hidden, shape.hidden),
        pos_emb=rng.normal(0, 0.5, (shape.codes_per_position, shape.hidden)).astype(np.float32),
        blocks=tuple(random_depth_block(rng, shape, group) for _ in range(shape.layers)),
        classifier_gain=rng.uniform(0.5, 1.5, shape.hidden).astype(np.float32),
        classifier_bias=rng.normal(0, 0.2, shape.hidden).astype(np.float32),
        classifier=eight(shape.hidden, codes),
    )


def random_depth_model(
    bits: int = 8,
    *,
    depth: DepthConfig | None = None,
    shape: BackboneConfig | None = None,
    frames: FrameLayout | None = None,
    group: int = 4,
    tas_query: str = "post_rope",
    criterion: str = "tas",
    seed: int = 0,
) -> IntegerModel:
    """A backbone of 7 words with a depth transformer, whose codes are no vocabulary entries.

    ``group``: inputs of a group, of 4-bit weights.
    """
    shape = (shape or config()).model_copy(update={"vocab": layout().code_offset})
    groups = None if bits == 8 else dict.fromkeys(("qkv", "output", "gate_up", "down"), group)
    scored = {"tas_query": tas_query, "criterion": criterion}
    model = random_model(bits, shape=shape, frames=frames, groups=groups, seed=seed, **scored)
    weights = random_depth(shape.hidden, CODES, depth, None if bits == 8 else group, seed)
    return replace(model, head=None, depth=weights)


def random_model(
    bits: int = 8,
    *,
    shape: BackboneConfig | None = None,
    frames: FrameLayout | None = None,
    groups: dict[str, int] | None = None,
    tas_query: str = "post_rope",
    criterion: str = "tas",
    tas_heads: str = "mean",
    seed: int = 0,
) -> IntegerModel:
    rng = np.random.default_rng(seed)
    shape, frames = shape or config(), frames or layout()
    if groups is None:
        groups = {} if bits == 8 else dict.fromkeys(("qkv", "output", "gate_up", "down"), 4)
    layers = tuple(random_layer(rng, shape, groups) for _ in range(shape.layers))
    embedding = rng.normal(0, 1, (shape.vocab, shape.hidden)).astype(np.float16)
    gain = rng.uniform(0.5, 1.5, shape.hidden).astype(np.float32)
    head = random_linear(rng, shape.hidden, frames.codes)
    scored = {"criterion": criterion, "tas_heads": tas_heads}
    return IntegerModel(shape, frames, embedding, layers, gain, head, tas_query, **scored)


def with_head_weights(model: IntegerModel, seed: int = 0) -> IntegerModel:
    """The same with the heads of every layer weighted: the first negatively, the last not at all."""
    rng, layers = np.random.default_rng([seed, 2]), []
    for layer in model.layers:
        weights = rng.uniform(0.2, 1, model.config.heads)
        weights[0], weights[-1] = -weights[0], 0
        layers.append(weigh_heads(layer, weights))
    return replace(model, layers=tuple(layers))


def save_graph(model: IntegerModel, folder: Path) -> Path:
    """The lowered model and its weight file in ``folder``; the path of the model."""
    folder.mkdir(parents=True, exist_ok=True)
    weights, path = folder / "weights.safetensors", folder / "backbone.onnx"
    write_tensors(weights, model_tensors(model))
    stored = stored_tensors(weights)
    depth = model.depth and model.depth.config
    scored = (model.tas_query, depth, model.criterion, model.tas_heads)
    ir.save(lower_backbone(model.config, model.layout, stored, weights.name, *scored), path)
    if depth:
        ir.save(lower_depth(model.config, depth, model.layout, stored, weights.name), folder / "depth.onnx")
    return path


class Lowered:
    """(bits, tas_query, criterion, tas_heads, changes of the shape) -> a model of random weights, its graph; each
    is made once, in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.made = folder, {}

    def __call__(
        self,
        bits: int,
        tas_query: str = "post_rope",
        criterion: str = "tas",
        tas_heads: str = "mean",
        **changes: int,
    ) -> tuple[IntegerModel, Path]:
        scored = {"tas_query": tas_query, "criterion": criterion, "tas_heads": tas_heads}
        key = (bits, *scored.values(), *sorted(changes.items()))
        if key not in self.made:
            model = random_model(bits, shape=config(**changes), **scored)
            self.made[key] = model, save_graph(model, self.folder / str(len(self.made)))
        return self.made[key]


def reference_backend(model: IntegerModel) -> ReferenceBackend:
    return ReferenceBackend(model, *rotary_tables(model.config, model.layout.positions))


def onnx_backend(model: IntegerModel, path: Path, threads: int = 1, optimize: bool = True) -> OnnxRuntimeBackend:
    depth = model.depth and model.depth.config
    return OnnxRuntimeBackend(path, model.config, model.layout, threads, optimize, depth, criterion=model.criterion)


GUIDED = SamplingSettings(temperature=0.9, top_k=30, top_p=0.95, guidance=3.0)
UNGUIDED = SamplingSettings(temperature=1.1, top_k=0, top_p=0.9, guidance=1.0)
INDEPENDENT = ReplaySettings()


@dataclass(frozen=True)
class Run:
    """What a clip is generated with; ``thresholds`` None is dense, else the integer threshold of every layer."""

    clips: int = 1
    sampling: SamplingSettings = GUIDED
    replay: ReplaySettings = INDEPENDENT
    thresholds: tuple[int, ...] | None = None
    seed: int = 0
    attention: AttentionSettings = FULL_ATTENTION
    padding: tuple[int, ...] = ()  # first positions of each row's prompt that hold nothing

    @property
    def rows(self) -> int:
        return self.clips * (2 if self.sampling.guided else 1)

    def limits(self, layers: int) -> np.ndarray:
        return np.array((NEVER,) * layers if self.thresholds is None else self.thresholds, np.int64)


def generate_clip(backend: SteppingBackend, run: Run, frames: int | None = None) -> FrameRecord:
    """A whole clip, frame by frame."""
    where, layers = backend.layout, backend.config.layers
    rng = np.random.default_rng(run.seed)
    frames, places = frames or where.frames, where.tokens_per_frame
    prompt = rng.integers(0, where.code_offset, (run.rows, where.prompt_length))
    for row, count in enumerate(run.padding):
        prompt[row, :count] = PADDING
    depth = () if backend.depth is None else (backend.depth.codes_per_position,)
    uniforms = rng.integers(0, 1 << 24, (frames * places, run.clips, *depth))
    backend.start(run.clips, where.frame_start(frames), run.sampling, run.replay, run.attention)
    backend.prefill(prompt[:, :-1])
    tokens, records = prompt[:, -1], []
    for frame in range(frames):
        records.append(backend.decode(tokens, uniforms[frame * places : (frame + 1) * places], run.limits(layers)))
        position = where.frame_start(frame + 1) - 2
        tokens = next_read(position, records[-1].codes[-1], run.rows, where, backend.depth)
    return joined(records)


def joined(records: list[FrameRecord]) -> FrameRecord:
    parts = {name: np.concatenate([getattr(record, name) for record in records]) for name in COMPARED}
    return FrameRecord(first=records[0].first, seconds=sum(record.seconds for record in records), **parts)


COMPARED = tuple(field.name for field in fields(FrameRecord) if field.name not in ("first", "seconds"))


def assert_same_bits(found: FrameRecord, expected: FrameRecord) -> None:
    assert found.first == expected.first
    for name in ("scores", "replay", "logits", "codes"):
        a, b = getattr(found, name), getattr(expected, name)
        assert a.dtype == b.dtype and a.shape == b.shape, name
        differ = np.argwhere(a.view(np.uint32) != b.view(np.uint32) if a.dtype == np.float32 else a != b)
        assert not differ.size, f"{name}{differ[0].tolist()} is the first of {len(differ)} that differ"


def fingerprint(record: FrameRecord) -> str:
    digest = hashlib.sha256()
    for name in sorted(COMPARED):
        digest.update(np.ascontiguousarray(getattr(record, name)).tobytes())
    return digest.hexdigest()


def median_thresholds(scores: np.ndarray, where: FrameLayout) -> tuple[int, ...]:
    """From a dense run: what half of the eligible scores of each layer exceed."""
    return tuple(int(np.median(layer)) for layer in scores[where.tokens_per_frame + 1 :].swapaxes(0, 1))
