"""``config.json`` of a Hugging Face LLaMA checkpoint: what of it is understood, and what is refused by its name."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ...toolkit.config import BackboneConfig, RopeScaling
from ...toolkit.errors import CheckpointError

__all__ = ["ARCHITECTURES", "HuggingFaceConfig", "is_huggingface", "read_config", "read_json"]

ARCHITECTURES = ("LlamaForCausalLM",)
ACTIVATIONS = ("silu", "swish")  # two names of one function
NO_SCALING = (None, "default")
FIX = "Convert the checkpoint, or choose another one."


@dataclass(frozen=True)
class HuggingFaceConfig:
    """``tied``: the head is the embedding. ``positions``: the context the model says it was made for."""

    backbone: BackboneConfig
    tied: bool
    positions: int


def is_huggingface(declared: Any) -> bool:
    """Whether a config.json is of that kind of checkpoint, supported or not."""
    return isinstance(declared, dict) and "architectures" in declared


def read_json(path: Path) -> Any:
    """The content of a config.json. CheckpointError if it cannot be read or is no JSON."""
    try:
        return json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise CheckpointError(path, f"cannot be read ({error.strerror})", "a JSON file", "Copy it again.") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(path, f"not JSON ({error})", "a checkpoint's config.json", "Copy it again.") from error


def read_config(path: Path) -> HuggingFaceConfig:
    """CheckpointError naming the key that is missing, or whose value the engine would silently get wrong."""
    declared = read_json(path)
    _refuse(path, declared)
    try:
        return HuggingFaceConfig(
            _backbone(path, declared),
            declared.get("tie_word_embeddings") or False,
            int(declared["max_position_embeddings"]),
        )
    except KeyError as error:
        raise CheckpointError(path, f"{error.args[0]} is missing", "the keys of a LLaMA", "Copy it again.") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise CheckpointError(path, f"{where}: {first['msg']}", "a LLaMA that can be", FIX) from error
    except (TypeError, ValueError, ArithmeticError, AttributeError) as error:  # infinite, no heads to divide by
        raise CheckpointError(path, f"holds what is no usable number ({error})", "the keys of a LLaMA", FIX) from error


def _refuse(path: Path, declared: dict[str, Any]) -> None:
    architectures = declared.get("architectures")
    if not isinstance(architectures, list) or not set(map(str, architectures)) & set(ARCHITECTURES):
        raise CheckpointError(path, f"architectures {architectures!r}", f"one of {', '.join(ARCHITECTURES)}", FIX)
    activation = declared.get("hidden_act", "silu")
    if activation not in ACTIVATIONS:
        raise CheckpointError(path, f"hidden_act {activation!r}", f"one of {', '.join(ACTIVATIONS)}", FIX)
    for key in ("tie_word_embeddings", "attention_bias", "mlp_bias"):
        if declared.get(key) not in (None, False, True):
            raise CheckpointError(path, f"{key} {declared[key]!r}", "true or false", FIX)
    if declared.get("pretraining_tp", 1) != 1:
        raise CheckpointError(path, f"pretraining_tp {declared['pretraining_tp']}", "1", FIX)
    if quantized := declared.get("quantization_config"):
        kind = quantized.get("quant_method", "?") if isinstance(quantized, dict) else quantized
        fix = "Take the float checkpoint it was made from."
        raise CheckpointError(path, f"quantization_config {kind}", "weights that are not quantized yet", fix)


def _backbone(path: Path, declared: dict[str, Any]) -> BackboneConfig:
    rope = _rope(declared)
    heads = declared["num_attention_heads"]
    return BackboneConfig(
        hidden=declared["hidden_size"],
        layers=declared["num_hidden_layers"],
        heads=heads,
        kv_heads=declared.get("num_key_value_heads") or heads,
        head_dim=declared.get("head_dim") or declared["hidden_size"] // heads,
        mlp=declared["intermediate_size"],
        vocab=declared["vocab_size"],
        rope_theta=rope.get("rope_theta", 10_000.0),
        rope_scaling=_scaling(path, rope, declared),
        norm_eps=declared["rms_norm_eps"],
        attention_bias=declared.get("attention_bias") or False,
        mlp_bias=declared.get("mlp_bias") or False,
    )


def _rope(declared: dict[str, Any]) -> dict[str, Any]:
    """Of old files and of new ones, which hold theta with the scaling."""
    rope = declared.get("rope_parameters") or declared.get("rope_scaling") or {}
    theta = {"rope_theta": declared["rope_theta"]} if declared.get("rope_theta") is not None else {}
    return {**theta, **rope}


def _scaling(path: Path, rope: dict[str, Any], declared: dict[str, Any]) -> RopeScaling | None:
    kind = rope.get("rope_type", rope.get("type"))
    if kind in NO_SCALING:
        return None
    if kind not in ("linear", "llama3", "yarn"):
        expected = "linear, llama3, yarn or none"
        raise CheckpointError(path, f"rope_scaling of type {kind!r}", expected, FIX)
    if rope.get("mscale") or rope.get("mscale_all_dim") or rope.get("truncate") is False:
        found = "rope_scaling with mscale, mscale_all_dim or truncate false"
        raise CheckpointError(path, found, "yarn as published (arXiv 2309.00071)", FIX)
    names = ("factor", "low_freq_factor", "high_freq_factor", "beta_fast", "beta_slow", "attention_factor")
    given = {name: rope[name] for name in names if rope.get(name) is not None}
    if kind != "linear":
        original = rope.get("original_max_position_embeddings", declared.get("original_max_position_embeddings"))
        given["original_positions"] = original or declared["max_position_embeddings"]
    return RopeScaling(type=kind, **given)
