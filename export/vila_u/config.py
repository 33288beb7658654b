"""The four ``config.json`` of a VILA-U checkpoint: what of them is understood, and what is refused by its key."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ...toolkit.config import DepthConfig, Frozen, Positive
from ...toolkit.errors import CheckpointError
from ...toolkit.settings import SamplingSettings
from ..huggingface.config import HuggingFaceConfig, read_json
from ..huggingface.config import read_config as read_llama

__all__ = [
    "FRAMES",
    "LLM",
    "PROJECTOR",
    "SAMPLING",
    "VISION",
    "PictureConfig",
    "VilaUConfig",
    "is_vila_u",
    "read_config",
]

LLM, VISION, PROJECTOR = "llm", "vision_tower", "mm_projector"
FRAMES = 8  # of a clip of the release
SAMPLING = SamplingSettings(temperature=1.0, top_k=900, top_p=0.96, guidance=3.0)  # the defaults of the release
MODEL_TYPES, VISION_TYPE = ("vila_u_llama", "vila_u"), "rqvaesigliptransformer_model"
GROUPS = 32  # of every GroupNorm
VIDEO_START_FROM_END = 2  # the vocabulary ends with <im_start> <im_end> <vi_start> <vi_end>
FIX = "Convert the checkpoint, or choose another one."
COPY_AGAIN = "Copy it again."


class PictureConfig(Frozen):
    """The VQGAN-style decoder from the sum of a position's embeddings to pictures; ``ch_mult`` from fine to coarse."""

    embed_dim: Positive
    z_channels: Positive
    ch: Positive
    ch_mult: tuple[Positive, ...]
    num_res_blocks: Positive
    attn_resolutions: tuple[Positive, ...]
    resolution: Positive
    latent_shape: tuple[Positive, Positive] | None


@dataclass(frozen=True)
class VilaUConfig:
    """``codes`` of a codebook; ``grid`` (h, w) of positions a frame; ``video_start`` the token before the first."""

    llama: HuggingFaceConfig
    depth: DepthConfig
    codes: int
    grid: tuple[int, int]
    pictures: PictureConfig

    @property
    def video_start(self) -> int:
        return self.llama.backbone.vocab - VIDEO_START_FROM_END


def is_vila_u(declared: Any) -> bool:
    """Whether a config.json is the top one of that kind of checkpoint."""
    return isinstance(declared, dict) and declared.get("model_type") in MODEL_TYPES


def read_config(folder: Path) -> VilaUConfig:
    """CheckpointError naming the file, and the key that is missing or has a value that is not supported."""
    path = folder / "config.json"
    top = _read(path)
    _one_of(path, "model_type", top.get("model_type"), *MODEL_TYPES)
    _one_of(path, "mm_use_im_start_end", top.get("mm_use_im_start_end", False), True)
    _one_of(path, "mm_use_vi_start_end", top.get("mm_use_vi_start_end", False), True)
    llama = read_llama(folder / LLM / "config.json")
    layers = _projector_layers(folder / PROJECTOR / "config.json")
    path = folder / VISION / "config.json"
    vision = _read(path)
    _one_of(path, "model_type", vision.get("model_type"), VISION_TYPE)
    try:
        return _vision(path, vision, llama, layers)
    except KeyError as error:
        expected = "the keys of a residual quantizer and its transformer"
        raise CheckpointError(path, f"{error.args[0]} is missing", expected, COPY_AGAIN) from error
    except ValidationError as error:
        first = error.errors()[0]
        found = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise CheckpointError(path, found, "sizes that can be", FIX) from error
    except (TypeError, ValueError, AttributeError, IndexError, ArithmeticError) as error:
        raise CheckpointError(path, f"holds what cannot be used ({error})", "sizes that can be", FIX) from error


def _read(path: Path) -> dict[str, Any]:
    declared = read_json(path)
    if not isinstance(declared, dict):
        raise CheckpointError(path, "no object", "a checkpoint's config.json", COPY_AGAIN)
    return declared


def _one_of(path: Path, key: str, found: Any, *supported: Any) -> None:
    if found not in supported:
        raise CheckpointError(path, f"{key} {found!r}", f"one of {', '.join(map(repr, supported))}", FIX)


def _projector_layers(path: Path) -> int:
    kind = _read(path).get("mm_projector_type")
    if kind == "linear":
        return 1
    match = re.fullmatch(r"mlp([2-9]|[1-9]\d)x_gelu", kind) if isinstance(kind, str) else None
    if match is None:
        raise CheckpointError(path, f"mm_projector_type {kind!r}", "one of linear, mlp2x_gelu, mlp3x_gelu, ...", FIX)
    return int(match[1])


def _vision(path: Path, declared: dict[str, Any], llama: HuggingFaceConfig, layers: int) -> VilaUConfig:
    quantizer, transformer = declared["rqvaesiglip"], declared["rqtransformer"]
    height, width, codes_per_position = quantizer["code_shape"]
    embed_dim, codes = quantizer["embed_dim"], transformer["vocab_size"]
    for key, found, supported in (
        ("rqvaesiglip.latent_shape", list(quantizer["latent_shape"]), [height, width, embed_dim]),
        ("rqvaesiglip.n_embed", quantizer["n_embed"], codes),
        ("rqtransformer.block_size", list(transformer["block_size"]), [height, width, codes_per_position]),
        ("rqtransformer.input_embed_dim_1", transformer["input_embed_dim_1"], embed_dim),
        ("rqtransformer.input_embed_dim_2", transformer["input_embed_dim_2"], llama.backbone.hidden),
    ):
        _one_of(path, key, found, supported)
    hidden = transformer["embed_dim"]
    depth = DepthConfig(
        hidden=hidden,
        layers=transformer["head"]["n_layer"],
        heads=transformer["head"]["block"]["n_head"],
        mlp=4 * hidden,
        codes_per_position=codes_per_position,
        code_dim=embed_dim,
        shared_codebook=bool(quantizer.get("shared_codebook")),
        projector_layers=layers,
    )
    return VilaUConfig(llama, depth, codes, (height, width), _pictures(path, quantizer))


def _pictures(path: Path, quantizer: dict[str, Any]) -> PictureConfig:
    decoder = quantizer["ddconfig"]
    _one_of(path, "rqvaesiglip.ddconfig.out_ch", decoder["out_ch"], 3)
    _one_of(path, "rqvaesiglip.ddconfig.resamp_with_conv", decoder.get("resamp_with_conv", True), True)
    _one_of(path, "rqvaesiglip.ddconfig.give_pre_end", decoder.get("give_pre_end", False), False)
    _one_of(path, f"rqvaesiglip.ddconfig.ch {decoder['ch']} modulo {GROUPS}", decoder["ch"] % GROUPS, 0)
    names = ("z_channels", "ch", "num_res_blocks", "attn_resolutions", "resolution")
    latent = quantizer.get("decoder_latent_shape")
    return PictureConfig(
        embed_dim=quantizer["embed_dim"],
        ch_mult=decoder.get("ch_mult", (1, 2, 4, 8)),
        latent_shape=latent and tuple(latent),
        **{name: decoder[name] for name in names},
    )
