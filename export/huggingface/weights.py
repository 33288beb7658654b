"""The backbone of a Hugging Face checkpoint, read a layer at a time: the names are those of ``export.llama``."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from pathlib import Path

import torch

from ...toolkit.errors import CheckpointError
from ..llama import DecoderLayer
from ..quantize.checks import check_embedding
from ..shards import TensorStore, check_tensors, read_finite
from .config import HuggingFaceConfig

__all__ = ["HuggingFaceSource", "expected_tensors"]

EMBEDDING, GAIN, HEAD = "model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"
IGNORED = r"model\.(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq"  # old files store what config.json says
FIX = "Is config.json of these weights? Copy both again."


def expected_tensors(config: HuggingFaceConfig) -> dict[str, tuple[int, ...]]:
    """Shapes by name; of a tied model without the head."""
    backbone = config.backbone
    with torch.device("meta"):
        layer = {name: tuple(tensor.shape) for name, tensor in DecoderLayer(backbone).state_dict().items()}
    expected = {EMBEDDING: (backbone.vocab, backbone.hidden)}
    for index in range(backbone.layers):
        expected |= {f"model.layers.{index}.{name}": shape for name, shape in layer.items()}
    expected[GAIN] = (backbone.hidden,)
    return expected if config.tied else expected | {HEAD: (backbone.vocab, backbone.hidden)}


class HuggingFaceSource:
    """A ``BackboneSource`` of a folder, whose tensors are checked by their headers when it is made.

    CheckpointError if tensors are missing, too many or of another shape.
    """

    def __init__(self, folder: Path, config: HuggingFaceConfig) -> None:
        self.store, self.tied = TensorStore(folder), config.tied
        self._check_layers(config)
        self._expected = expected_tensors(config)
        check_tensors(self.store, self._expected, FIX, f"{IGNORED}|{HEAD}" if config.tied else IGNORED)
        self.config = config.backbone

    def first(self, layers: int) -> HuggingFaceSource:
        some = copy(self)
        some.config = self.config.model_copy(update={"layers": layers})
        return some

    def check(self, advance: Callable[[int, int], None]) -> None:
        """As ``BackboneSource.check``; also a head that is said to be the embedding and is not."""
        names = [name for name in self._expected if not name.startswith("model.layers.") or self._is_used(name)]
        for done, name in enumerate(names):
            tensor = read_finite(self.store, name, FIX)
            if name == EMBEDDING:
                check_embedding(f"{self.store.tensors[name].file}: {name}", tensor)
                self._check_tie(tensor)
            advance(done + 1, len(names))

    def embedding(self) -> torch.Tensor:
        return self._read(EMBEDDING)

    def layer(self, index: int) -> DecoderLayer:
        with torch.device("meta"):
            layer = DecoderLayer(self.config)
        for name, _ in list(layer.named_parameters()):
            owner, _, field = name.rpartition(".")
            value = torch.nn.Parameter(self._read(f"model.layers.{index}.{name}"), requires_grad=False)
            setattr(layer.get_submodule(owner), field, value)
        return layer.eval()

    def final_gain(self) -> torch.Tensor:
        return self._read(GAIN)

    def head(self, first: int, count: int) -> torch.Tensor:
        return self._read(EMBEDDING if self.tied else HEAD)[first : first + count].clone()

    def _read(self, name: str) -> torch.Tensor:
        return self.store.read(name).float()

    def _is_used(self, name: str) -> bool:
        return int(name.split(".")[2]) < self.config.layers

    def _check_layers(self, config: HuggingFaceConfig) -> None:
        """Before so many layers are listed, only to be told that they are not there."""
        layers = config.backbone.layers
        if f"model.layers.{layers - 1}.input_layernorm.weight" not in self.store:
            found = f"no layer {layers - 1} among its {len(self.store.tensors)} tensors"
            raise CheckpointError(self.store.source, found, f"num_hidden_layers {layers}", FIX)

    def _check_tie(self, embedding: torch.Tensor) -> None:
        if not self.tied or HEAD not in self.store or torch.equal(self.store.read(HEAD).float(), embedding.float()):
            return
        found = f"tie_word_embeddings true, but {HEAD} is not {EMBEDDING}"
        fix = "Set tie_word_embeddings to false if the head is the model's own."
        raise CheckpointError(self.store.tensors[HEAD].file, found, "one and the same, or no head", fix)
