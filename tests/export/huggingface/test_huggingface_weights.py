"""Checkpoints that transformers makes and saves: the float model computes the same logits, far beyond the first
positions; what would be computed otherwise is refused by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM
from whole_llama import whole_llama

from fastcar.export.huggingface.config import read_config
from fastcar.export.huggingface.weights import HuggingFaceSource
from fastcar.export.llama import Llama
from fastcar.toolkit.errors import CheckpointError

POSITIONS = 700
SIZES = {"hidden_size": 64, "intermediate_size": 88, "num_hidden_layers": 2, "num_attention_heads": 8}
MODELS: dict[str, dict[str, Any]] = {
    "plain": {},
    "grouped queries": {"num_key_value_heads": 2},
    "one key/value head": {"num_key_value_heads": 1},
    "head_dim of its own": {"num_key_value_heads": 4, "head_dim": 16},
    "tied": {"tie_word_embeddings": True},
    "other theta": {"rope_parameters": {"rope_type": "default", "rope_theta": 500_000.0}},
    "other eps": {"rms_norm_eps": 1e-3},
    "attention biases": {"attention_bias": True, "num_key_value_heads": 2},
    "MLP biases": {"mlp_bias": True},
    "biases": {"attention_bias": True, "mlp_bias": True},
    "linear": {"rope_parameters": {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 2.0}},
    "llama3": {
        "rope_parameters": {
            "rope_type": "llama3", "rope_theta": 500_000.0, "factor": 8.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 128,
        }
    },
    "yarn": {
        "rope_parameters": {
            "rope_type": "yarn", "rope_theta": 10_000.0, "factor": 4.0, "original_max_position_embeddings": 256,
        }
    },
}  # fmt: skip


def reference(**changes: Any) -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=60, max_position_embeddings=1024, initializer_range=0.12,
        **{**SIZES, "num_key_value_heads": 8, "tie_word_embeddings": False, **changes},
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    for name, parameter in model.named_parameters():
        if name.endswith(".bias"):  # which transformers begins with zeros
            torch.nn.init.normal_(parameter, 0, 0.5)
    return model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    reference().save_pretrained(tmp_path)
    return tmp_path


def source(folder: Path) -> HuggingFaceSource:
    """Checked, as before an export."""
    made = HuggingFaceSource(folder, read_config(folder / "config.json"))
    made.check(lambda done, total: None)
    return made


def load_llama(folder: Path) -> Llama:
    return whole_llama(source(folder), POSITIONS)


def difference(folder: Path, model: LlamaForCausalLM) -> torch.Tensor:
    llama = load_llama(folder)
    tokens = torch.randint(0, 60, (2, POSITIONS), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected, found = model(tokens).logits, llama(tokens)
    assert expected.abs().max() > 1
    return (found - expected).abs()


@pytest.mark.parametrize("kind", MODELS)
def test_logits_are_those_of_transformers(kind: str, tmp_path: Path) -> None:
    model = reference(**MODELS[kind])
    model.save_pretrained(tmp_path, max_shard_size="40KB")
    found = difference(tmp_path, model)
    assert found.max() < 1e-4 and found[:, 512:].max() < 1e-4


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_weights_of_half_precision(dtype: torch.dtype, tmp_path: Path) -> None:
    reference().to(dtype).save_pretrained(tmp_path)
    again = LlamaForCausalLM.from_pretrained(tmp_path, dtype=torch.float32).eval()
    assert difference(tmp_path, again).max() < 1e-4


def test_an_old_file(folder: Path) -> None:
    """rope_theta and rope_scaling on their own, rotary tables among the tensors, no key/value heads named."""
    model = reference(rope_parameters={"rope_type": "linear", "rope_theta": 20_000.0, "factor": 2.0})
    model.save_pretrained(folder)

    def old(config: dict) -> None:
        del config["rope_parameters"], config["num_key_value_heads"]
        config |= {"rope_theta": 20_000.0, "rope_scaling": {"type": "linear", "factor": 2.0}}

    edit(folder, old)
    tensors = load_file(folder / "model.safetensors")
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(4)
    save_file(tensors, folder / "model.safetensors")
    assert difference(folder, model).max() < 1e-4


def edit(folder: Path, change: Callable[[dict], object]) -> None:
    config = json.loads((folder / "config.json").read_text())
    change(config)
    (folder / "config.json").write_text(json.dumps(config))


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "another architecture": ({"architectures": ["MixtralForCausalLM"]}, "expected one of LlamaForCausalLM"),
    "no architecture": ({"architectures": None}, "architectures None"),
    "biases of some kind": ({"attention_bias": "qkv"}, "attention_bias 'qkv'; expected true or false"),
    "another activation": ({"hidden_act": "gelu"}, "hidden_act 'gelu'; expected one of silu, swish"),
    "tensor parallel sums": ({"pretraining_tp": 2}, "pretraining_tp 2; expected 1"),
    "quantized before": ({"quantization_config": {"quant_method": "awq"}}, "quantization_config awq"),
    "dynamic scaling": ({"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}}, "type 'dynamic'"),
    "longrope": (
        {"rope_parameters": {"rope_type": "longrope", "factor": 2.0}},
        "expected linear, llama3, yarn or none",
    ),
    "yarn of others": ({"rope_parameters": {"rope_type": "yarn", "factor": 2.0, "mscale": 0.7}}, "with mscale"),
    "scaling without factor": ({"rope_parameters": {"rope_type": "linear"}}, "factor is missing"),
    "heads that do not divide": ({"num_key_value_heads": 3}, "heads 8 must be a multiple of kv_heads 3"),
    "negative size": ({"intermediate_size": -1}, "intermediate_size -1: Input should be greater than 0"),
    "words for numbers": ({"num_hidden_layers": "many"}, "num_hidden_layers 'many': Input should be a valid integer"),
    "a number in words": ({"hidden_size": "64"}, "hidden_size '64': Input should be a valid integer"),
    "a truth for a number": ({"rms_norm_eps": True}, "rms_norm_eps True: Input should be a valid number"),
    "a list for nothing": ({"head_dim": []}, "head_dim []: Input should be a valid integer"),
    "a zero for nothing": ({"num_key_value_heads": 0}, "num_key_value_heads 0: Input should be greater than 0"),
    "a number for a truth": ({"tie_word_embeddings": 0}, "tie_word_embeddings 0; expected true or false"),
    "a factor in words": ({"rope_parameters": {"rope_type": "linear", "factor": "2"}}, "factor '2': Input should be"),
    "a theta in words": ({"rope_parameters": {"rope_theta": "1e4"}}, "rope_theta '1e4': Input should be"),
    "a width beyond": ({"hidden_size": 2**31 - 1}, "hidden_size 2147483647: Input should be less than"),
    "a relative": ({"model_type": "mistral"}, "model_type 'mistral'; expected 'llama'"),
    "pairs side by side": ({"rope_interleaved": True}, "rope_interleaved True; expected False"),
    "half of a head turned": ({"partial_rotary_factor": 0.5}, "partial_rotary_factor 0.5; expected 1.0"),
    "half of a head, stretched": (
        {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "partial_rotary_factor": 0.5}},
        "partial_rotary_factor 0.5; expected 1",
    ),
    "a window": ({"sliding_window": 7}, "sliding_window 7; expected None"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_would_be_silently_wrong_is_refused(kind: str, folder: Path) -> None:
    changes, told = REFUSED[kind]
    edit(folder, lambda config: config.update(changes))
    with pytest.raises(CheckpointError) as caught:
        read_config(folder / "config.json")
    assert told in str(caught.value) and str(caught.value).startswith(f"{folder / 'config.json'}: ")


@pytest.mark.parametrize("key", ["hidden_size", "num_attention_heads", "rms_norm_eps", "max_position_embeddings"])
def test_what_is_missing_is_named(key: str, folder: Path) -> None:
    edit(folder, lambda config: config.pop(key))
    with pytest.raises(CheckpointError, match=f"{key} is missing; expected the keys of a LLaMA"):
        read_config(folder / "config.json")


def test_no_config(folder: Path) -> None:
    with pytest.raises(CheckpointError, match="cannot be read"):
        read_config(folder / "none.json")
    (folder / "config.json").write_text("{")
    with pytest.raises(CheckpointError, match="not JSON"):
        read_config(folder / "config.json")
    for text in ("[]", "3", "null"):
        (folder / "config.json").write_text(text)
        with pytest.raises(CheckpointError, match="config.json: no object"):
            read_config(folder / "config.json")


def test_weights_of_another_config(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Told before a weight is read."""
    monkeypatch.setattr("fastcar.export.shards.store.TensorStore.read", lambda *_: pytest.fail("nothing may be read"))
    edit(folder, lambda config: config.update(intermediate_size=96))
    with pytest.raises(CheckpointError, match=r"mlp.gate_proj.weight is \(88, 64\); expected \(96, 64\)"):
        load_llama(folder)
    edit(folder, lambda config: config.update(intermediate_size=88, num_hidden_layers=3))
    with pytest.raises(CheckpointError, match=r"no layer 2 among its \d+ tensors; expected num_hidden_layers 3"):
        load_llama(folder)
    edit(folder, lambda config: config.update(num_hidden_layers=1))
    with pytest.raises(CheckpointError, match=r"tensor model.layers.1.\S+ is not part of the model"):
        load_llama(folder)


@pytest.mark.parametrize("key", ["attention_bias", "mlp_bias"])
def test_biases_are_of_the_config(key: str, tmp_path: Path) -> None:
    """Neither left out nor thought of: told before a weight is read."""
    reference(**{key: True}).save_pretrained(tmp_path)
    edit(tmp_path, lambda config: config.update({key: False}))
    with pytest.raises(CheckpointError, match=r"tensor model.layers.\d.\S+_proj.bias is not part of the model"):
        load_llama(tmp_path)
    reference().save_pretrained(tmp_path)
    edit(tmp_path, lambda config: config.update({key: True}))
    with pytest.raises(CheckpointError, match=r"tensor model.layers.\d.\S+_proj.bias is missing"):
        load_llama(tmp_path)


def test_the_first_layers_only(folder: Path) -> None:
    """Of the others nothing is looked at."""
    tensors = load_file(folder / "model.safetensors")
    tensors["model.layers.1.mlp.up_proj.weight"][3, 4] = float("nan")
    save_file(tensors, folder / "model.safetensors")
    one = HuggingFaceSource(folder, read_config(folder / "config.json")).first(1)
    seen = []
    one.check(lambda done, total: seen.append((done, total)))
    assert one.config.layers == 1 and seen == [(done, 12) for done in range(1, 13)]


def test_a_head_that_is_said_to_be_the_embedding(folder: Path) -> None:
    edit(folder, lambda config: config.update(tie_word_embeddings=True))
    with pytest.raises(CheckpointError, match="tie_word_embeddings true, but lm_head.weight is not model.embed_tokens"):
        load_llama(folder)
    tensors = load_file(folder / "model.safetensors")
    save_file({**tensors, "lm_head.weight": tensors["model.embed_tokens.weight"].clone()}, folder / "model.safetensors")
    llama = load_llama(folder)
    assert torch.equal(llama.lm_head.weight, llama.model.embed_tokens.weight)
    edit(folder, lambda config: config.update(tie_word_embeddings=False))
    save_file({name: one for name, one in tensors.items() if name != "lm_head.weight"}, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match="tensor lm_head.weight is missing"):
        load_llama(folder)


def test_numbers_that_are_none(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors["model.layers.1.mlp.up_proj.weight"][3, 4] = float("nan")
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"model.layers.1.mlp.up_proj.weight\[3, 4\] is nan"):
        load_llama(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_attention_heads": 0, "head_dim": None}, "num_attention_heads 0: Input should be greater than 0"),
        ({"max_position_embeddings": float("inf")}, "max_position_embeddings inf: Input should be"),
        ({"rope_parameters": 7}, "rope_parameters 7: Input should be a valid dictionary"),
        ({"rms_norm_eps": float("inf")}, "rms_norm_eps inf: Input should be a finite number"),
        ({"vocab_size": 10**30}, "vocab_size 10{30}: Input should be less than"),
        ({"tie_word_embeddings": "false"}, "tie_word_embeddings 'false'; expected true or false"),
        ({"num_hidden_layers": 10**9}, "no layer 999999999 among its 21 tensors"),
    ],
)
def test_numbers_of_no_model(change: dict[str, Any], message: str, folder: Path) -> None:
    """Told at once, however many layers it would be."""
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(CheckpointError, match=message):
        load_llama(folder)
