"""The backbone of a Hugging Face checkpoint as this project's ``Llama``: the names are the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from ...toolkit.errors import CheckpointError
from ..llama import Llama
from ..shards import TensorStore, check_tensors, read_finite
from .config import HuggingFaceConfig

__all__ = ["expected_tensors", "load_llama"]

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"
IGNORED = r"model\.(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq"  # old files store what config.json says
FIX = "Is config.json of these weights? Copy both again."


def expected_tensors(config: HuggingFaceConfig, positions: int) -> dict[str, tuple[int, ...]]:
    """Shapes by name; of a tied model without the head."""
    with torch.device("meta"):
        state = Llama(config.backbone, positions).state_dict()
    return {name: tuple(tensor.shape) for name, tensor in state.items() if not (config.tied and name == HEAD)}


def load_llama(
    folder: Path, config: HuggingFaceConfig, positions: int, advance: Callable[[int, int], None] = lambda done, of: None
) -> Llama:
    """In float32. CheckpointError, before a weight is read, if tensors are missing, too many or of another shape;
    then for a number that is none, and for a head that is said to be the embedding and is not."""
    store = TensorStore(folder)
    _check_layers(store, config)
    expected = expected_tensors(config, positions)
    check_tensors(store, expected, FIX, f"{IGNORED}|{HEAD}" if config.tied else IGNORED)
    with torch.device("meta"):
        llama = Llama(config.backbone, positions)
    llama.to_empty(device="cpu")
    llama.remake_tables()
    own = dict(llama.named_parameters())
    for done, name in enumerate(expected):
        advance(done, len(expected))
        own[name].data.copy_(read_finite(store, name, FIX))
    if config.tied:
        _tie(store, llama)
    advance(len(expected), len(expected))
    return llama.eval()


def _check_layers(store: TensorStore, config: HuggingFaceConfig) -> None:
    """Before so many layers are made, be it without memory, only to be told that they are not there."""
    layers = config.backbone.layers
    if f"model.layers.{layers - 1}.input_layernorm.weight" not in store:
        found = f"no layer {layers - 1} among its {len(store.tensors)} tensors"
        raise CheckpointError(store.path, found, f"num_hidden_layers {layers}", FIX)


def _tie(store: TensorStore, llama: Llama) -> None:
    embedding = llama.model.embed_tokens.weight
    if HEAD in store and not torch.equal(store.read(HEAD).float(), embedding):
        found = f"tie_word_embeddings true, but {HEAD} is not {EMBEDDING}"
        fix = "Set tie_word_embeddings to false if the head is the model's own."
        raise CheckpointError(store.tensors[HEAD].file, found, "one and the same, or no head", fix)
    llama.lm_head.weight.data.copy_(embedding)
