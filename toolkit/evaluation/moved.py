"""Bytes that a run would move over the memory port of an overlay: the planner's schedule on the run's own decisions.

Counted with scheduling: the MLP's weights of a layer are not read in the steps in which all rows replay.
"""

from __future__ import annotations

import numpy as np

from ...hls.counting import ANY_ENGINE, Memory, counter_of_any_engine
from ..bundle.bundle import Bundle
from ..errors import UsageError
from ..generation.record import Generation
from ..planner.program import shape_program
from ..planner.shapes import load_shape
from ..planner.step import Rows, StepCounter, total, whole
from ..program.memory import BEAT_BYTES

__all__ = ["MovedBytes", "why_not_counted"]

MEMORY = Memory(1.0)  # its rate has no influence on how many bytes there are


class MovedBytes:
    """UsageError if the planner cannot count this model, or without a compiler for its schedule."""

    def __init__(self, bundle: Bundle) -> None:
        recipe = str(bundle.manifest.recipe.get("name")).split(",")[0]  # an expanded bundle is packed as before
        self._shape = load_shape(bundle.path)
        self._program = shape_program(self._shape, recipe)
        self._counter = counter_of_any_engine()

    def per_step(self, run: Generation) -> float:
        """Mean over all steps of the run's frames, weights, caches, replayed outputs and records together."""
        rows = Rows.of(self._shape, run.rows)
        step = StepCounter(self._counter, self._program, rows, ANY_ENGINE, MEMORY, run.attention)
        layout = self._shape.frame_layout
        frames, places, layers, _ = run.replay.shape
        # The first step reads the prompt's last token, and the last position is never read.
        flags = np.concatenate([np.zeros((1, layers, run.rows), bool), run.replay.reshape(-1, layers, run.rows)[:-1]])
        bits = (flags.astype(np.uint32) << np.arange(run.rows, dtype=np.uint32)).sum(axis=2, dtype=np.uint32)
        counts = [
            step.counts(layout.frame_start(frame) - 1, masks, True)
            for frame, masks in enumerate(bits.reshape(frames, places, layers))
        ]
        return BEAT_BYTES * whole(total([(count, 1 / frames) for count in counts])).beats


def why_not_counted(bundle: Bundle) -> str | None:
    """None if bytes can be counted; compiles the schedule if that was not done yet."""
    try:
        MovedBytes(bundle)
    except UsageError as error:
        return f"{error.subject}: {error.found}; expected {error.expected}"
    return None
