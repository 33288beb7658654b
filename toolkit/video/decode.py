"""Codes to RGB through the bundle's decoder."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from ..backends.onnxruntime import open_session
from ..bundle.bundle import DECODER, Bundle

__all__ = ["FollowingDecoder", "FrameDecoder"]


class FrameDecoder:
    """``decoder(codes)``: codes (frames, height, width[, D]) -> RGB (frames, height', width', 3) uint8.

    Residual codes have a last axis more. A graph whose frame axis is 1 gets one frame after the other.
    The decoder is integer arithmetic: equal codes are equal pixels on every machine.
    """

    def __init__(self, bundle: Bundle, threads: int | None = None) -> None:
        self.session = open_session(bundle.path / DECODER, threads)
        self.single = self.session.get_inputs()[0].shape[0] == 1

    def __call__(self, codes: np.ndarray) -> np.ndarray:
        codes = np.ascontiguousarray(codes, np.int64)
        return np.concatenate([self._run(frame) for frame in codes[:, None]]) if self.single else self._run(codes)

    def _run(self, codes: np.ndarray) -> np.ndarray:
        return self.session.run(["frames"], {"codes": codes})[0]


class FollowingDecoder:
    """Decodes each frame in a thread of its own while the next one is generated elsewhere than on this processor."""

    def __init__(self, bundle: Bundle) -> None:
        self._decode = FrameDecoder(bundle, threads=1)
        self._pool = ThreadPoolExecutor(1, "fastcar-decoder")
        self._frames: list[Future[np.ndarray]] = []

    def add(self, codes: np.ndarray) -> None:
        """Codes of one frame, (clips, height, width[, D]); they are not to change afterwards."""
        self._frames.append(self._pool.submit(self._decode, codes))

    def finish(self) -> np.ndarray:
        """(clips, frames, height', width', 3) uint8 of all that was added."""
        self._pool.shutdown()
        return np.stack([frame.result() for frame in self._frames], axis=1)
