"""A whole float model from a source that gives it a layer at a time."""

from __future__ import annotations

import torch

from fastcar.export.llama import Llama
from fastcar.export.source import BackboneSource


def whole_llama(source: BackboneSource, positions: int) -> Llama:
    with torch.device("meta"):
        llama = Llama(source.config, positions)
    llama.remake_tables()
    llama.model.embed_tokens.weight = torch.nn.Parameter(source.embedding())
    llama.model.norm.weight = torch.nn.Parameter(source.final_gain())
    llama.lm_head.weight = torch.nn.Parameter(source.head(0, source.config.vocab))
    for index in range(source.config.layers):
        llama.model.layers[index] = source.layer(index)
    return llama.eval()
