"""The four ``config.json`` of a VILA-U checkpoint: what of them is understood, and what is refused by its key."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from ...toolkit.config import DepthConfig, Frozen, Positive
from ...toolkit.errors import CheckpointError
from ...toolkit.settings import SamplingSettings
from ..huggingface.config import Declared, HuggingFaceConfig, Width, config_error, read_object
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


Side = Annotated[int, Field(gt=0, le=4096)]
"""Of a map, and other numbers that multiply."""


class _Pictures(Declared):
    z_channels: Width
    ch: Annotated[int, Field(gt=0, le=1 << 16)]
    ch_mult: list[Annotated[int, Field(gt=0, le=256)]] = Field(
        default_factory=lambda: [1, 2, 4, 8], min_length=1, max_length=16
    )
    num_res_blocks: Positive
    attn_resolutions: list[Positive]
    resolution: Positive
    out_ch: Literal[3]
    resamp_with_conv: Literal[True] = True
    give_pre_end: Literal[False] = False


class _Quantizer(Declared):
    embed_dim: Width
    n_embed: Positive
    latent_shape: list[Positive]
    code_shape: Annotated[list[Side], Field(min_length=3, max_length=3)]
    shared_codebook: bool | None = None
    decoder_latent_shape: Annotated[list[Side], Field(min_length=2, max_length=2)] | None = None
    ddconfig: _Pictures


class _Block(Declared):
    n_head: Width


class _Head(Declared):
    n_layer: Positive
    block: _Block


class _Transformer(Declared):
    block_size: list[Positive]
    embed_dim: Width
    input_embed_dim_1: Width
    input_embed_dim_2: Width
    vocab_size: Positive
    head: _Head


class _Vision(Declared):
    rqvaesiglip: _Quantizer
    rqtransformer: _Transformer


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
    top = read_object(path)
    _one_of(path, "model_type", top.get("model_type"), *MODEL_TYPES)
    _one_of(path, "mm_use_im_start_end", top.get("mm_use_im_start_end", False), True)
    _one_of(path, "mm_use_vi_start_end", top.get("mm_use_vi_start_end", False), True)
    llama = read_llama(folder / LLM / "config.json")
    layers = _projector_layers(folder / PROJECTOR / "config.json")
    path = folder / VISION / "config.json"
    vision = read_object(path)
    _one_of(path, "model_type", vision.get("model_type"), VISION_TYPE)
    try:
        return _vision(path, _Vision.model_validate(vision), llama, layers)
    except ValidationError as error:
        raise config_error(path, error, "the keys of a residual quantizer and its transformer") from error


def _one_of(path: Path, key: str, found: Any, *supported: Any) -> None:
    if found not in supported:
        raise CheckpointError(path, f"{key} {found!r}", f"one of {', '.join(map(repr, supported))}", FIX)


def _projector_layers(path: Path) -> int:
    kind = read_object(path).get("mm_projector_type")
    if kind == "linear":
        return 1
    match = re.fullmatch(r"mlp([2-9]|[1-9]\d)x_gelu", kind) if isinstance(kind, str) else None
    if match is None:
        raise CheckpointError(path, f"mm_projector_type {kind!r}", "one of linear, mlp2x_gelu, mlp3x_gelu, ...", FIX)
    return int(match[1])


def _vision(path: Path, declared: _Vision, llama: HuggingFaceConfig, layers: int) -> VilaUConfig:
    quantizer, transformer = declared.rqvaesiglip, declared.rqtransformer
    height, width, codes_per_position = quantizer.code_shape
    embed_dim, codes, hidden = quantizer.embed_dim, transformer.vocab_size, transformer.embed_dim
    for key, found, supported in (
        ("rqvaesiglip.latent_shape", quantizer.latent_shape, [height, width, embed_dim]),
        ("rqvaesiglip.n_embed", quantizer.n_embed, codes),
        ("rqvaesiglip.ddconfig.ch modulo 32", quantizer.ddconfig.ch % GROUPS, 0),
        ("rqtransformer.block_size", transformer.block_size, quantizer.code_shape),
        ("rqtransformer.input_embed_dim_1", transformer.input_embed_dim_1, embed_dim),
        ("rqtransformer.input_embed_dim_2", transformer.input_embed_dim_2, llama.backbone.hidden),
    ):
        _one_of(path, key, found, supported)
    depth = DepthConfig(
        hidden=hidden,
        layers=transformer.head.n_layer,
        heads=transformer.head.block.n_head,
        mlp=4 * hidden,
        codes_per_position=codes_per_position,
        code_dim=embed_dim,
        shared_codebook=quantizer.shared_codebook or False,
        projector_layers=layers,
    )
    return VilaUConfig(llama, depth, codes, (height, width), _pictures(quantizer))


def _pictures(quantizer: _Quantizer) -> PictureConfig:
    decoder, latent = quantizer.ddconfig, quantizer.decoder_latent_shape
    return PictureConfig(
        embed_dim=quantizer.embed_dim,
        z_channels=decoder.z_channels,
        ch=decoder.ch,
        ch_mult=tuple(decoder.ch_mult),
        num_res_blocks=decoder.num_res_blocks,
        attn_resolutions=tuple(decoder.attn_resolutions),
        resolution=decoder.resolution,
        latent_shape=(latent[0], latent[1]) if latent else None,
    )
