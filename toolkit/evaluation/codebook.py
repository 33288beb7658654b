"""What the codes of a clip stand for: the embeddings that a bundle's decoder begins with."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..bundle.bundle import DECODER, Bundle
from ..errors import BundleError, UsageError

__all__ = ["Codebook", "read_codebook"]

NAMED = "codebooks."  # of the decoder of residual codes, a number behind it; others gather codes from a constant


@dataclass(frozen=True)
class Codebook:
    """``books`` (1 or ``depth``, codes, embedding) float64 in units of their own root mean square: what a decoder's
    integers are to be multiplied with is of no importance then, and distances of several models are comparable.

    ValueError for another number of books, or books of zeros alone.
    """

    books: np.ndarray
    depth: int

    def __post_init__(self) -> None:
        books = np.asarray(self.books, np.float64)
        if books.ndim != 3 or len(books) not in (1, self.depth) or not books.any():
            raise ValueError(f"books of shape {books.shape} for {self.depth} codes a position, or of zeros alone")
        object.__setattr__(self, "books", books / np.sqrt(np.mean(books**2)))

    def embed(self, codes: np.ndarray) -> np.ndarray:
        """codes (..., cells), with a last axis of ``depth`` if that is not 1 -> latents (..., cells, embedding), the
        sums over the depths. ValueError for codes that are not in the books, or of another depth."""
        number = self.books.shape[1]
        if codes.size == 0 or codes.min() < 0 or codes.max() >= number:
            raise ValueError(f"codes of shape {codes.shape} hold others than 0 to {number - 1}, or none")
        if self.depth == 1:
            return self.books[0][codes]
        if codes.shape[-1] != self.depth:
            raise ValueError(f"codes of shape {codes.shape}; expected a last axis of {self.depth}")
        return sum(self.books[depth % len(self.books)][codes[..., depth]] for depth in range(self.depth))


def read_codebook(bundle: Bundle) -> Codebook:
    """From the decoder's graph. UsageError without the package onnx, BundleError for a decoder that holds no codebook
    (one that was not made by this project's exporter)."""
    try:
        import onnx
    except ImportError as error:
        fix = "pip install 'fastcar-edge[export]'"
        raise UsageError("Frechet distance", "no package onnx", "it, to read the codebook of a bundle", fix) from error
    path = bundle.path / DECODER
    graph = onnx.load(str(path)).graph
    books = _books(graph, onnx.numpy_helper.to_array)
    if not books or len({book.shape for book in books}) != 1 or books[0].ndim != 2:
        raise BundleError(path, "no codebook", "a decoder that gathers embeddings by codes", "Export the model again.")
    depth = len(graph.input[0].type.tensor_type.shape.dim) - 3
    last = graph.input[0].type.tensor_type.shape.dim[-1].dim_value
    return Codebook(np.stack(books), last if depth else 1)


def _books(graph, to_array) -> list[np.ndarray]:
    """Initializers named as codebooks, in the order of their numbers, or the constant that ``codes`` gathers from."""
    named = {tensor.name: tensor for tensor in graph.initializer if tensor.name.startswith(NAMED)}
    if named:
        return [to_array(named[name]) for name in sorted(named, key=lambda name: int(name.removeprefix(NAMED)))]
    constants = {node.output[0]: node.attribute[0].t for node in graph.node if node.op_type == "Constant"}
    gathers = [node.input for node in graph.node if node.op_type == "Gather" and node.input[1] == graph.input[0].name]
    return [to_array(constants[data]) for data, _ in gathers if data in constants]
