"""Checkpoints of random weights in the published layout: ``python -m fastcar.export.vila_u.synthetic DIR --size tiny``.

Memory, time and files can be tried at real size without a download. Tensors are written a piece at a time.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import torch

from ...toolkit.errors import OutputError
from ..llama import Llama
from .config import LLM, PROJECTOR, VISION, read_config
from .tokenizer import SPACE, bpe_tokenizer
from .weights import Shapes, expected_tensors

__all__ = ["SIZES", "write_checkpoint"]

SHARD_BYTES = 5_000_000_000
PIECE = 1 << 24  # values made at once: 64 MiB in float32
SPREAD = 0.02  # of weights; biases are smaller, gains near one
SPECIAL = ("<im_start>", "<im_end>", "<vi_start>", "<vi_end>")
SIZES: dict[str, dict[str, Any]] = {
    "tiny": {
        "llm": (64, 2, 4, 128, 288), "depth": (64, 2, 4), "codes": 32, "code_shape": (4, 4, 4), "embed_dim": 16,
        "decoder": (32, 32, (1, 2), 1, (4,), 8),
    },
    "vila-u-7b": {
        "llm": (4096, 32, 32, 11008, 32004), "depth": (2560, 6, 40), "codes": 16384, "code_shape": (16, 16, 4),
        "embed_dim": 1024, "decoder": (256, 128, (1, 1, 2, 2, 4), 2, (16,), 256),
    },
}  # fmt: skip
"""llm: hidden, layers, heads, mlp, vocab. depth: hidden, layers, heads. decoder: z_channels, ch, ch_mult, ..."""


def write_checkpoint(
    folder: Path, size: str, *, seed: int = 0, projector: str = "mlp2x_gelu", shared: bool = True,
    shard_bytes: int = SHARD_BYTES,
) -> None:  # fmt: skip
    """A folder of bfloat16 shards with an index; the same seed makes the same bytes. OutputError for one in use."""
    if folder.exists() and any(folder.iterdir()):
        raise OutputError(folder, "is not empty", "a new folder", "Name another one.")
    for name, content in _configs(SIZES[size], projector, shared).items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        _write_json(folder / name / "config.json", content)
    config = read_config(folder)
    _write_json(folder / LLM / "tokenizer.json", _tokenizer(config.llama.backbone.vocab))
    with torch.device("meta"):
        backbone = Llama(config.llama.backbone, 1).state_dict()
    llama = {name: tuple(tensor.shape) for name, tensor in backbone.items()}
    for name, shapes in {LLM: llama, **expected_tensors(config)}.items():
        _write_shards(folder / name, shapes, seed, shard_bytes)


def _configs(size: dict[str, Any], projector: str, shared: bool) -> dict[str, dict[str, Any]]:
    hidden, layers, heads, mlp, vocab = size["llm"]
    width, blocks, depth_heads = size["depth"]
    z_channels, ch, ch_mult, num_res_blocks, attn_resolutions, resolution = size["decoder"]
    shape, embed_dim, codes = size["code_shape"], size["embed_dim"], size["codes"]
    quantizer = {
        "embed_dim": embed_dim, "n_embed": codes, "latent_shape": (*shape[:2], embed_dim), "code_shape": shape,
        "shared_codebook": shared, "decoder_latent_shape": None,
        "ddconfig": {
            "z_channels": z_channels, "ch": ch, "ch_mult": ch_mult, "num_res_blocks": num_res_blocks, "out_ch": 3,
            "attn_resolutions": attn_resolutions, "resolution": resolution, "in_channels": 3, "double_z": False,
        },
    }  # fmt: skip
    transformer = {
        "block_size": shape, "embed_dim": width, "input_embed_dim_1": embed_dim, "input_embed_dim_2": hidden,
        "vocab_size": codes, "head": {"n_layer": blocks, "block": {"n_head": depth_heads}},
    }  # fmt: skip
    llama = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": hidden, "intermediate_size": mlp,
        "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": heads, "vocab_size": vocab,
        "rms_norm_eps": 1e-5, "max_position_embeddings": 4096, "hidden_act": "silu", "tie_word_embeddings": False,
        "bos_token_id": 1, "eos_token_id": 2,
    }  # fmt: skip
    return {
        "": {
            "model_type": "vila_u_llama", "architectures": ["VILAULlamaModel"],
            "mm_use_im_start_end": True, "mm_use_vi_start_end": True,
        },
        LLM: llama,
        PROJECTOR: {"model_type": "v2l_projector", "mm_projector_type": projector},
        VISION: {
            "model_type": "rqvaesigliptransformer_model", "hidden_size": embed_dim,
            "rqvaesiglip": quantizer, "rqtransformer": transformer,
        },
    }  # fmt: skip


def _tokenizer(vocab: int) -> dict[str, Any]:
    """Text as bytes, in the layout of LLaMA: <unk> <s> </s>, 256 bytes, fillers, the four added tokens."""
    words = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), SPACE]
    words += [f"<unused{index}>" for index in range(vocab - len(SPECIAL) - len(words))]
    added = {vocab - len(SPECIAL) + index: word for index, word in enumerate(SPECIAL)}
    return bpe_tokenizer({word: index for index, word in enumerate(words)}, [], "<unk>", added)


def _write_shards(folder: Path, shapes: Shapes, seed: int, limit: int) -> None:
    shards: list[Shapes] = [{}]
    for name, shape in shapes.items():
        if shards[-1] and 2 * sum(map(math.prod, (*shards[-1].values(), shape))) > limit:
            shards.append({})
        shards[-1][name] = shape
    files = [f"model-{index + 1:05}-of-{len(shards):05}.safetensors" for index in range(len(shards))]
    if len(shards) == 1:
        files = ["model.safetensors"]
    for file, shard in zip(files, shards, strict=True):
        _write_shard(folder / file, shard, seed)
    if len(shards) > 1:
        index = {name: file for file, shard in zip(files, shards, strict=True) for name in shard}
        total = 2 * sum(map(math.prod, shapes.values()))
        _write_json(folder / "model.safetensors.index.json", {"metadata": {"total_size": total}, "weight_map": index})


def _write_shard(path: Path, shapes: Shapes, seed: int) -> None:
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, shape in shapes.items():
        end = offset + 2 * math.prod(shape)
        header[name], offset = {"dtype": "BF16", "shape": shape, "data_offsets": (offset, end)}, end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name, shape in shapes.items():
            for piece in _values(name, shape, seed):
                file.write(piece.to(torch.bfloat16).view(torch.int16).numpy().tobytes())


def _values(name: str, shape: tuple[int, ...], seed: int) -> Iterator[torch.Tensor]:
    generator = torch.Generator().manual_seed(zlib.crc32(f"{seed} {name}".encode()))
    centre = 1.0 if len(shape) == 1 and name.endswith("weight") else 0.0
    spread = 1 / math.sqrt(math.prod(shape[1:])) if len(shape) == 4 else SPREAD
    total = math.prod(shape)
    for first in range(0, total, PIECE):
        count = min(PIECE, total - first)
        yield torch.empty(count).normal_(centre, spread, generator=generator)


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", "utf-8")


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option("--size", type=click.Choice(list(SIZES)), default="tiny", show_default=True)
@click.option("--seed", type=int, default=0, show_default=True)
def main(folder: Path, size: str, seed: int) -> None:
    """Write a checkpoint of random weights; vila-u-7b takes 14 GB of disk, and less than 1 GB of memory."""
    write_checkpoint(folder, size, seed=seed)


if __name__ == "__main__":
    main()
