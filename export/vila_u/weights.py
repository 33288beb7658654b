"""The tensors of a VILA-U checkpoint, checked by their headers before any is read; the backbone is not among them."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from ...toolkit.errors import CheckpointError
from ..depth import CodeEmbedding, DepthBlock, DepthTransformer
from ..shards import TensorStore, check_tensors, read_finite
from .config import PROJECTOR, VISION, VilaUConfig
from .decoder import PictureDecoder

__all__ = ["VilaUVision", "expected_tensors"]

Shapes = dict[str, tuple[int, ...]]
QUANTIZER, TRANSFORMER = "rqvaesiglip", "rqtransformer"
BOOK = f"{QUANTIZER}.quantizer.codebooks.{{}}.weight"
IGNORED = (  # the encoder, and what only training of a codebook needs
    rf"{QUANTIZER}\.(siglip_model\..*|logit_scale|logit_bias"
    r"|quantizer\.codebooks\.\d+\.(cluster_size_ema|embed_ema))"
)
FIX = "Is config.json of these weights? Copy both again."


def expected_tensors(config: VilaUConfig) -> dict[str, Shapes]:
    """Shapes by name, by sub-folder, of all but the backbone; of shared codebooks the first, others may repeat it."""
    depth = config.depth
    with torch.device("meta"):
        transformer, pictures = _transformer(config), PictureDecoder(config.pictures)
        projector = CodeEmbedding(depth, config.codes, config.llama.backbone.hidden).projector
    vision = {BOOK.format(index): (config.codes + 1, depth.code_dim) for index in range(depth.books)}
    vision |= {f"{QUANTIZER}.{name}": shape for name, shape in _shapes(pictures).items()}
    vision |= {f"{TRANSFORMER}.{name}": shape for name, shape in _shapes(transformer).items()}
    named = {_projector_name(name, depth.projector_layers): shape for name, shape in _shapes(projector).items()}
    return {VISION: vision, PROJECTOR: named}


def _projector_name(name: str, layers: int) -> str:
    """Of one layer, ``linear``, a checkpoint has no sequence."""
    return f"layers.{name.removeprefix('0.')}" if layers == 1 else f"layers.{name}"


def _transformer(config: VilaUConfig) -> DepthTransformer:
    return DepthTransformer(config.depth, config.codes, config.llama.backbone.hidden)


def _shapes(module: nn.Module) -> Shapes:
    return {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}


class VilaUVision:
    """All but the backbone, which ``huggingface.weights`` reads from ``llm``.

    CheckpointError, when it is made, for a tensor that is missing, of another shape, or not part of the model; when it
    is read, for a value that is no finite number.
    """

    def __init__(self, folder: Path, config: VilaUConfig) -> None:
        self.config = config
        self.vision, self.projector = TensorStore(folder / VISION), TensorStore(folder / PROJECTOR)
        self._check_last()
        expected = expected_tensors(config)
        repeated = [BOOK.format(index) for index in range(1, config.depth.codes_per_position)]
        self._repeated = [name for name in repeated if config.depth.shared_codebook and name in self.vision]
        ignored = "|".join((IGNORED, *(name.replace(".", r"\.") for name in self._repeated)))
        check_tensors(self.vision, expected[VISION], FIX, ignored)
        check_tensors(self.projector, expected[PROJECTOR], FIX)

    def _check_last(self) -> None:
        """Before so many layers are listed, only to be told that they are not there."""
        layers, blocks = self.config.depth.layers, self.config.pictures.num_res_blocks
        for name in (
            f"{TRANSFORMER}.head_transformer.blocks.{layers - 1}.ln1.weight",
            f"{QUANTIZER}.decoder.up.0.block.{blocks}.norm1.weight",
        ):
            if name not in self.vision:
                raise CheckpointError(self.vision.source, f"tensor {name} is missing", "all that config.json says", FIX)

    def codebooks(self) -> tuple[torch.Tensor, ...]:
        """(codes, code_dim) float32, without the row for padding; one, if shared."""
        first = self._read(self.vision, BOOK.format(0))
        for name in self._repeated:
            if not torch.equal(self._read(self.vision, name), first):
                file = self.vision.tensors[name].file
                raise CheckpointError(file, f"{name} differs from the first", "one shared_codebook", FIX)
        rest = (self._read(self.vision, BOOK.format(index)) for index in range(1, self.config.depth.books))
        return tuple(book[: self.config.codes] for book in (first, *rest))

    def embedding(self) -> CodeEmbedding:
        depth, books = self.config.depth, self.codebooks()
        with torch.device("meta"):
            module = CodeEmbedding(depth, self.config.codes, self.config.llama.backbone.hidden)
        state = {f"codebooks.{index}.weight": book for index, book in enumerate(books)}
        for name in module.projector.state_dict():
            stored = _projector_name(name, depth.projector_layers)
            state[f"projector.{name}"] = self._read(self.projector, stored)
        return _filled(module, state)

    def depth(self) -> DepthTransformer:
        with torch.device("meta"):
            module = _transformer(self.config)
        return _filled(module, self._under(TRANSFORMER, module))

    def block(self, index: int) -> DepthBlock:
        """One of the depth transformer, alone: the whole is some 2 GB in float32 where the release has 7 billion."""
        with torch.device("meta"):
            module = DepthBlock(self.config.depth)
        return _filled(module, self._under(f"{TRANSFORMER}.head_transformer.blocks.{index}", module))

    def pictures(self) -> PictureDecoder:
        with torch.device("meta"):
            module = PictureDecoder(self.config.pictures)
        return _filled(module, self._under(QUANTIZER, module))

    def _under(self, prefix: str, module: nn.Module) -> dict[str, torch.Tensor]:
        return {name: self._read(self.vision, f"{prefix}.{name}") for name in module.state_dict()}

    def _read(self, store: TensorStore, name: str) -> torch.Tensor:
        return read_finite(store, name, FIX).float()


def _filled(module: nn.Module, state: dict[str, torch.Tensor]) -> nn.Module:
    module.load_state_dict(state, assign=True)
    return module.eval().requires_grad_(False)
