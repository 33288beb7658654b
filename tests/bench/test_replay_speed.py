"""Does replay save time? Dense and replayed steps of the same clip, measured in turns in one run.

Random weights: the time of a step depends on shapes alone, as long as no row's path depends on values other than
the replay decision, which is forced here.
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from fastcar.export.lower.graph import lower_backbone
from fastcar.toolkit.backends.onnxruntime import OnnxRuntimeBackend
from fastcar.toolkit.bundle.tensor_file import stored_tensors, write_tensors
from fastcar.toolkit.bundle.tensors import model_tensors
from fastcar.toolkit.config import BackboneConfig, FrameLayout
from fastcar.toolkit.numerics.tas import NEVER
from fastcar.toolkit.numerics.weights import IntegerModel, LayerWeights, LinearWeights
from fastcar.toolkit.settings import ReplaySettings, SamplingSettings

CODES, OFFSET = 1024, 32
SHAPES = {
    "100m": BackboneConfig(hidden=768, layers=12, heads=12, kv_heads=4, head_dim=64, mlp=3072, vocab=OFFSET + CODES),
    "1.1b": BackboneConfig(hidden=2048, layers=22, heads=32, kv_heads=4, head_dim=64, mlp=5632, vocab=OFFSET + CODES),
}
LAYOUT = FrameLayout(prompt_length=4, frames=6, grid=(8, 8), code_offset=OFFSET, codes=CODES)
BLOCK, BLOCKS = 16, 4


def random_linear(rng: np.random.Generator, inputs: int, outputs: int) -> LinearWeights:
    values = rng.integers(-127, 128, (inputs, outputs), np.int8)
    return LinearWeights(values, np.full(outputs, 1 / (73 * inputs**0.5), np.float32))


def random_layer(rng: np.random.Generator, config: BackboneConfig) -> LayerWeights:
    inner = config.heads * config.head_dim
    return LayerWeights(
        attention_gain=np.ones(config.hidden, np.float32),
        qkv=random_linear(rng, config.hidden, inner + 2 * config.kv_heads * config.head_dim),
        q_scale=np.full(config.heads, 0.03, np.float32),
        k_scale=np.full(config.kv_heads, 0.03, np.float32),
        v_scale=np.full(config.kv_heads, 0.03, np.float32),
        tas_multiplier=np.ones(config.heads, np.int32),
        tas_scale=0.03 * 0.03,
        output=random_linear(rng, inner, config.hidden),
        mlp_gain=np.ones(config.hidden, np.float32),
        gate_up=random_linear(rng, config.hidden, 2 * config.mlp),
        down=random_linear(rng, config.mlp, config.hidden),
    )


def random_backend(config: BackboneConfig, folder: Path, threads: int) -> OnnxRuntimeBackend:
    rng = np.random.default_rng(0)
    layers = tuple(random_layer(rng, config) for _ in range(config.layers))
    embedding = rng.normal(size=(config.vocab, config.hidden)).astype(np.float16)
    head = random_linear(rng, config.hidden, CODES)
    model = IntegerModel(config, LAYOUT, embedding, layers, np.ones(config.hidden, np.float32), head)
    write_tensors(folder / "w.safetensors", model_tensors(model))
    graph = lower_backbone(config, LAYOUT, stored_tensors(folder / "w.safetensors"), "w.safetensors")
    ir.save(graph, folder / "step.onnx")
    return OnnxRuntimeBackend(folder / "step.onnx", config, LAYOUT, threads)


def step_seconds(backend: OnnxRuntimeBackend, blocks: int = BLOCKS) -> dict[str, float]:
    """Median seconds a step of frame 1, dense and with everything eligible replayed, two rows, blocks in turns."""
    layers, rng = backend.config.layers, np.random.default_rng(1)
    backend.start(1, LAYOUT.positions, SamplingSettings(guidance=3.0), ReplaySettings(policy="all"))
    backend.prefill(np.array([[2, 3, 4], [0, 0, 0]]))
    tokens = np.array([1, 1])
    kinds = {"dense": np.full(layers, NEVER), "replay": np.full(layers, -NEVER)}
    seconds: dict[str, list[float]] = {kind: [] for kind in kinds}

    def decode(steps: int, kind: str) -> float:
        nonlocal tokens
        record = backend.decode(tokens, rng.integers(0, 1 << 24, (steps, 1)), kinds[kind])
        assert record.replay.all() == (kind == "replay")
        tokens = np.tile(record.codes[-1] + OFFSET, 2)
        return record.seconds / steps

    decode(LAYOUT.tokens_per_frame + 1, "dense")
    for _ in range(blocks):
        for kind in kinds:
            decode(2, kind)  # the first steps of a block still find the other kind's weights in the cache
            seconds[kind].append(decode(BLOCK, kind))
    return {kind: statistics.median(times) for kind, times in seconds.items()}


@pytest.mark.parametrize(
    ("shape", "threads", "least"), [("100m", 1, 1.8), ("1.1b", 1, 2.7), ("100m", 2, 1.6), ("1.1b", 2, 2.3)]
)
def test_replay_saves_time(
    shape: str, threads: int, least: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A step whose MLPs all replay is at least this much faster than a dense one.

    Positions 70 to 220. Two threads read weights twice as fast, but the operators between them cost the same: the
    ratio is smaller. So it is further into a clip, where attention, which both kinds of steps do, takes longer.
    """
    seconds = step_seconds(random_backend(SHAPES[shape], tmp_path, threads))
    speed_up = seconds["dense"] / seconds["replay"]
    with capsys.disabled():
        milliseconds = {kind: round(1e3 * value, 2) for kind, value in seconds.items()}
        figures = {"shape": shape, "threads": threads, "milliseconds_a_step": milliseconds}
        print("\n" + json.dumps({**figures, "speed_up": round(speed_up, 2)}))
    assert speed_up >= least
