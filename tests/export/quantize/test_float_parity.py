"""The float decoder is the LLaMA of the transformers library, far beyond the first positions."""

from __future__ import annotations

import pytest
import torch

from fastcar.export.llama import Llama
from fastcar.toolkit.config import BackboneConfig

transformers = pytest.importorskip("transformers")


@pytest.mark.parametrize(("heads", "kv_heads", "theta"), [(8, 8, 10000.0), (8, 2, 5000.0)])
def test_logits_equal_transformers(heads, kv_heads, theta):
    config = BackboneConfig(
        hidden=64, layers=2, heads=heads, kv_heads=kv_heads, head_dim=8, mlp=88, vocab=50, rope_theta=theta
    )
    torch.manual_seed(0)
    reference = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            hidden_size=64,
            num_hidden_layers=2,
            num_attention_heads=heads,
            num_key_value_heads=kv_heads,
            head_dim=8,
            intermediate_size=88,
            vocab_size=50,
            rms_norm_eps=config.norm_eps,
            max_position_embeddings=1024,
            rope_parameters={"rope_type": "default", "rope_theta": theta},
            rope_theta=theta,
            initializer_range=0.2,
            tie_word_embeddings=False,
        )
    ).eval()
    llama = Llama(config, 700).eval()
    llama.load_state_dict(reference.state_dict())
    tokens = torch.randint(0, 50, (2, 700))
    with torch.no_grad():
        expected, got = reference(tokens).logits, llama(tokens)
    assert expected.abs().max() > 1
    assert (got - expected).abs().max() < 1e-4
    assert (got - expected)[:, 512:].abs().max() < 1e-4
