"""The share of each frame's evaluations that has to replay for the frame to take a given time. Estimated."""

from __future__ import annotations

import numpy as np

from ...boards import load_board
from ...hls.counting import counter_of_any_engine
from ..bundle.bundle import Bundle
from ..errors import UsageError
from ..settings import FULL_ATTENTION, AttentionSettings
from .program import shape_program
from .search import engine_memory
from .shapes import load_shape
from .step import Rows, StepCounter, whole

__all__ = ["shares_for_time"]

OPTION = "--hold-frame-time"


def shares_for_time(
    bundle: Bundle, seconds: float, frames: int, rows: int, attention: AttentionSettings = FULL_ATTENTION
) -> tuple[float, ...]:
    """For ``ReplaySettings.hold``: one share a frame, of the first, which never replays, 0.

    A step's time lies between that of the dense one and that of one in which all rows of all layers replay, by the
    cycle model for the bundle's engine and board, and each layer that replays for all rows saves as much. A frame that
    takes longer even so has share 1. UsageError for a bundle that was packed for no board, a time that is none, or one
    that every frame beats when it is dense.
    """
    manifest = bundle.manifest
    if not 0 < seconds < float("inf"):
        raise UsageError(OPTION, str(seconds), "a number of seconds", "Give another time.")
    if manifest.board is None or manifest.engine is None:
        fix = "Export it with --board, or use --hold-replay-ratio."
        raise UsageError(OPTION, f"{bundle.path} is packed for no board", "a bundle with an overlay's engine", fix)
    layout, layers = manifest.frame_layout, manifest.config.layers
    shape = load_shape(bundle.path)
    program = shape_program(shape, str(manifest.recipe["name"]))
    memory = engine_memory(load_board(manifest.board), manifest.engine.clock_mhz)
    counter = StepCounter(counter_of_any_engine(), program, Rows.of(shape, rows), manifest.engine, memory, attention)
    frame_cycles = seconds * manifest.engine.clock_mhz * 1e6
    shares, slowest = [0.0], 0.0
    for frame in range(1, frames):
        position = layout.frame_start(frame) + layout.tokens_per_frame // 2
        dense, replayed = (
            layout.tokens_per_frame * whole(counter.counts(position, masks, True)).cycles
            for masks in (np.zeros((1, layers), np.uint32), np.full((1, layers), (1 << rows) - 1, np.uint32))
        )
        shares.append(min(max((dense - frame_cycles) / (dense - replayed), 0.0), 1.0))
        slowest = max(slowest, dense)
    if not any(shares[1:]):
        slowest /= manifest.engine.clock_mhz * 1e6
        found = f"{seconds:g} s, and the slowest frame takes {slowest:.3g} s without replay (estimated)"
        raise UsageError(OPTION, found, "less than that", "Give a shorter time, or drop it.")
    return tuple(shares)
