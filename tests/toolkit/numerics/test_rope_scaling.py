"""Stretched rotary frequencies are those of the transformers library; what is no scaling is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from fastcar.export.llama import rotary_tables as float_tables
from fastcar.toolkit.config import BackboneConfig, RopeScaling
from fastcar.toolkit.numerics.rope import inverse_frequencies, rotary_tables

modeling = pytest.importorskip("transformers.models.llama.modeling_llama")
from transformers import LlamaConfig  # noqa: E402

ORIGINAL = 512
CASES = {
    "linear": ({"rope_type": "linear", "factor": 4.0}, {"type": "linear", "factor": 4.0}),
    "llama3": (
        {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
        {"type": "llama3", "factor": 8.0, "original_positions": ORIGINAL},
    ),
    "llama3, other bounds": (
        {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 0.5, "high_freq_factor": 6.0},
        {"type": "llama3", "factor": 32.0, "original_positions": ORIGINAL, "low_freq_factor": 0.5,
         "high_freq_factor": 6.0},
    ),
    "yarn": ({"rope_type": "yarn", "factor": 4.0}, {"type": "yarn", "factor": 4.0, "original_positions": ORIGINAL}),
    "yarn, other turns": (
        {"rope_type": "yarn", "factor": 16.0, "beta_fast": 24.0, "beta_slow": 2.0, "attention_factor": 1.25},
        {"type": "yarn", "factor": 16.0, "original_positions": ORIGINAL, "beta_fast": 24.0, "beta_slow": 2.0,
         "attention_factor": 1.25},
    ),
}  # fmt: skip


def backbone(head_dim: int, theta: float, scaling: RopeScaling | None) -> BackboneConfig:
    return BackboneConfig(
        hidden=64, layers=1, heads=2, kv_heads=1, head_dim=head_dim, mlp=32, vocab=8, rope_theta=theta,
        rope_scaling=scaling,
    )  # fmt: skip


@pytest.mark.parametrize("theta", [10_000.0, 500_000.0])
@pytest.mark.parametrize("head_dim", [16, 64, 128])
@pytest.mark.parametrize("case", CASES)
def test_tables_are_those_of_transformers(case: str, head_dim: int, theta: float) -> None:
    theirs, ours = CASES[case]
    config = LlamaConfig(
        hidden_size=2 * head_dim, num_attention_heads=2, head_dim=head_dim, max_position_embeddings=8 * ORIGINAL,
        rope_parameters={**theirs, "rope_theta": theta, "original_max_position_embeddings": ORIGINAL},
    )  # fmt: skip
    positions = torch.arange(3000)[None]
    cos, sin = (table[0].numpy() for table in modeling.LlamaRotaryEmbedding(config)(torch.zeros(1), positions))
    scaled = backbone(head_dim, theta, RopeScaling(**ours))
    half = head_dim // 2
    for tables in (rotary_tables(scaled, 3000), [table.numpy() for table in float_tables(scaled, 3000)]):
        assert np.abs(tables[0][:, :half] - cos[:, :half]).max() < 2e-3  # theirs are of binary32 angles
        assert np.abs(tables[1][:, -half:] - sin[:, :half]).max() < 2e-3
        assert np.abs(tables[0][:100, :half] - cos[:100, :half]).max() < 2e-5
    plain, _ = inverse_frequencies(backbone(head_dim, theta, None))
    stretched, _ = inverse_frequencies(scaled)
    assert (stretched <= plain).all() and stretched[-1] < plain[-1]


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"type": "dynamic", "factor": 2.0}, "'linear', 'llama3' or 'yarn'"),
        ({"type": "linear", "factor": 0.5}, "greater than or equal to 1"),
        ({"type": "yarn", "factor": 2.0}, "yarn needs original_positions"),
        ({"type": "llama3", "factor": 2.0, "original_positions": 8, "low_freq_factor": 4.0}, "must be above 4"),
    ],
)
def test_what_is_no_scaling(fields: dict, told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        RopeScaling(**fields)
