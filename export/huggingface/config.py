"""``config.json`` of a Hugging Face LLaMA checkpoint: what of it is understood, and what is refused by its name."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ...toolkit.config import BackboneConfig, Positive, RopeScaling
from ...toolkit.errors import CheckpointError
from ...toolkit.validation import first_fault

__all__ = [
    "ARCHITECTURES",
    "FIX",
    "Declared",
    "HuggingFaceConfig",
    "Width",
    "config_error",
    "is_huggingface",
    "is_supported",
    "read_config",
    "read_json",
    "read_object",
]

ARCHITECTURES = ("LlamaForCausalLM",)
ACTIVATIONS = ("silu", "swish")  # two names of one function
NO_SCALING = (None, "default")
OTHERWISE = {"rope_interleaved": False, "rope_interleave": False, "partial_rotary_factor": 1.0, "sliding_window": None}
"""Keys of relatives whose rotary pairs or attention are others, with what they say where it is none of these."""

FIX = "Convert the checkpoint, or choose another one."

Width = Annotated[int, Field(gt=0, le=1 << 20)]
"""Of a layer: the bytes of a matrix between two of them can be counted in 64 bits."""


class Declared(BaseModel):
    """Some keys of a config.json, in the types of JSON: no words for numbers, no truth values either."""

    model_config = ConfigDict(strict=True)


class _Llama(Declared):
    hidden_size: Width
    intermediate_size: Width
    num_hidden_layers: Positive
    num_attention_heads: Width
    num_key_value_heads: Width | None = None
    head_dim: Width | None = None
    vocab_size: Positive
    max_position_embeddings: int = Field(gt=0)
    rms_norm_eps: float = Field(gt=0, allow_inf_nan=False)
    rope_theta: float | None = None
    rope_parameters: dict[str, Any] | None = None
    rope_scaling: dict[str, Any] | None = None
    original_max_position_embeddings: int | None = None
    tie_word_embeddings: bool | None = None
    attention_bias: bool | None = None
    mlp_bias: bool | None = None


@dataclass(frozen=True)
class HuggingFaceConfig:
    """``tied``: the head is the embedding. ``positions``: the context the model says it was made for."""

    backbone: BackboneConfig
    tied: bool
    positions: int


def is_huggingface(declared: Any) -> bool:
    """Whether a config.json is of that kind of checkpoint, supported or not."""
    return isinstance(declared, dict) and "architectures" in declared


def is_supported(architectures: Any) -> bool:
    return isinstance(architectures, list) and bool(set(map(str, architectures)) & set(ARCHITECTURES))


def read_json(path: Path) -> Any:
    """The content of a config.json. CheckpointError if it cannot be read or is no JSON."""
    try:
        return json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise CheckpointError(path, f"cannot be read ({error.strerror})", "a JSON file", "Copy it again.") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(path, f"not JSON ({error})", "a checkpoint's config.json", "Copy it again.") from error


def read_object(path: Path) -> dict[str, Any]:
    """The same, which has to be an object."""
    declared = read_json(path)
    if not isinstance(declared, dict):
        raise CheckpointError(path, "no object", "a checkpoint's config.json", "Copy it again.")
    return declared


def config_error(path: Path, error: ValidationError, expected: str) -> CheckpointError:
    """Of the first key that is wrong: its name, what it holds, and why it cannot be."""
    where, why = first_fault(error)
    first = error.errors()[0]
    if first["type"] == "missing":
        return CheckpointError(path, f"{where} is missing", expected, "Copy it again.")
    held = f" {repr(first['input'])[:60]}" if where else ""
    return CheckpointError(path, f"{where}{held}: {why}", expected, FIX)


def read_config(path: Path) -> HuggingFaceConfig:
    """CheckpointError naming the key that is missing, or whose value the engine would silently get wrong."""
    declared = read_object(path)
    _refuse(path, declared)
    try:
        llama = _Llama.model_validate(declared)
        return HuggingFaceConfig(
            _backbone(path, llama), llama.tie_word_embeddings or False, llama.max_position_embeddings
        )
    except ValidationError as error:
        raise config_error(path, error, "the keys of a LLaMA") from error


def _refuse(path: Path, declared: dict[str, Any]) -> None:
    architectures = declared.get("architectures")
    if not is_supported(architectures):
        raise CheckpointError(path, f"architectures {architectures!r}", f"one of {', '.join(ARCHITECTURES)}", FIX)
    activation = declared.get("hidden_act", "silu")
    if activation not in ACTIVATIONS:
        raise CheckpointError(path, f"hidden_act {activation!r}", f"one of {', '.join(ACTIVATIONS)}", FIX)
    for key in ("tie_word_embeddings", "attention_bias", "mlp_bias"):
        if not isinstance(declared.get(key), bool | None):
            raise CheckpointError(path, f"{key} {declared[key]!r}", "true or false", FIX)
    if declared.get("pretraining_tp", 1) != 1:
        raise CheckpointError(path, f"pretraining_tp {declared['pretraining_tp']}", "1", FIX)
    kind = declared.get("model_type", "llama")
    if kind != "llama":
        raise CheckpointError(path, f"model_type {kind!r}", "'llama', as its architectures say", FIX)
    for key, usual in OTHERWISE.items():
        if declared.get(key, usual) not in (usual, None):
            raise CheckpointError(path, f"{key} {declared[key]!r}", f"{usual!r}, or none: it is a LLaMA's", FIX)
    if quantized := declared.get("quantization_config"):
        kind = quantized.get("quant_method", "?") if isinstance(quantized, dict) else quantized
        fix = "Take the float checkpoint it was made from."
        raise CheckpointError(path, f"quantization_config {kind}", "weights that are not quantized yet", fix)


def _backbone(path: Path, llama: _Llama) -> BackboneConfig:
    rope, heads = _rope(llama), llama.num_attention_heads
    theta = {"rope_theta": rope["rope_theta"]} if rope.get("rope_theta") is not None else {}
    return BackboneConfig.model_validate(
        {
            "hidden": llama.hidden_size,
            "layers": llama.num_hidden_layers,
            "heads": heads,
            "kv_heads": llama.num_key_value_heads or heads,
            "head_dim": llama.head_dim or llama.hidden_size // heads,
            "mlp": llama.intermediate_size,
            "vocab": llama.vocab_size,
            **theta,
            "rope_scaling": _scaling(path, rope, llama),
            "norm_eps": llama.rms_norm_eps,
            "attention_bias": llama.attention_bias or False,
            "mlp_bias": llama.mlp_bias or False,
        },
        strict=True,
    )


def _rope(llama: _Llama) -> dict[str, Any]:
    """Of old files and of new ones, which hold theta with the scaling."""
    rope = llama.rope_parameters or llama.rope_scaling or {}
    theta = {"rope_theta": llama.rope_theta} if llama.rope_theta is not None else {}
    return {**theta, **rope}


def _scaling(path: Path, rope: dict[str, Any], llama: _Llama) -> RopeScaling | None:
    if rope.get("partial_rotary_factor", 1.0) != 1.0:
        found = f"rope_parameters with partial_rotary_factor {rope['partial_rotary_factor']!r}"
        raise CheckpointError(path, found, "1: all of a head is turned", FIX)
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
        original = rope.get("original_max_position_embeddings")
        original = llama.original_max_position_embeddings if original is None else original
        given["original_positions"] = llama.max_position_embeddings if original is None else original
    return RopeScaling.model_validate({"type": kind, **given}, strict=True)
