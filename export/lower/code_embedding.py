"""CodeEmbedding: what a residual code stands for, and what the backbone reads in place of a token."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from ...toolkit.config import DepthConfig
from .body import Body

__all__ = ["code_embedding", "embed_codes"]

Embed = Callable[[ir.Value, np.ndarray], ir.Value]


def code_embedding(
    op: Body, code: ir.Value, index: ir.Value, codebook: ir.Value, *, codes: int, config: DepthConfig
) -> ir.Value:
    """Residual code ``index`` int64 (rows,), codebook float16 (books * codes, code_dim) -> float32 (rows, code_dim)."""
    row = code if config.shared_codebook else op("Add", code, op("Mul", index, np.int64(codes)))
    return op.cast(op("Gather", codebook, row, axis=0), ir.DataType.FLOAT)


def embed_codes(op: Body, codes: ir.Value, embed: Embed, config: DepthConfig) -> ir.Value:
    """codes int64 (rows, D) -> the sum of their embeddings (rows, code_dim), in the order of the codes.

    The 0 that ``numerics.depth`` starts from changes nothing but the sign of a zero, which no integer keeps.
    """
    total = None
    for index in range(config.codes_per_position):
        code = op("Gather", codes, np.int64(index), axis=1)
        embedded = embed(code, np.int64(index))
        total = embedded if total is None else op("Add", total, embedded)
    return total
