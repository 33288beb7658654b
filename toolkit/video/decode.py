"""Codes to RGB through the bundle's decoder."""

from __future__ import annotations

import numpy as np

from ..backends.onnxruntime import open_session
from ..bundle.bundle import DECODER, Bundle

__all__ = ["FrameDecoder"]


class FrameDecoder:
    """``decoder(codes)``: codes (frames, height, width) -> RGB (frames, height', width', 3) uint8.

    The decoder is integer arithmetic: equal codes are equal pixels on every machine.
    """

    def __init__(self, bundle: Bundle, threads: int | None = None) -> None:
        self.session = open_session(bundle.path / DECODER, threads)

    def __call__(self, codes: np.ndarray) -> np.ndarray:
        return self.session.run(["frames"], {"codes": np.ascontiguousarray(codes, np.int64)})[0]
