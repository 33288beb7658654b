"""Does a step cost the same wherever it is in the clip? No cache is copied, so only attention itself may grow."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import numpy as np
import pytest

from fastcar.export.pipeline import export_model
from fastcar.toolkit.backends.registry import open_backend
from fastcar.toolkit.numerics.tas import NEVER
from fastcar.toolkit.settings import ReplaySettings

AROUND = 32  # steps timed at each position
GROWTH = 1.5


def test_late_steps_cost_little_more(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of `car`, dense, two rows: position 900 within 1.5 x of position 100."""
    bundle = export_model("car", tmp_path / "car", evaluate=False)
    backend = open_backend("onnxruntime", bundle, threads=1)
    layout, sampling = bundle.manifest.frame_layout, bundle.manifest.sampling
    backend.start(1, layout.positions, sampling, ReplaySettings())
    backend.prefill(np.array([[2, 3, 0], [0, 0, 0]]))
    tokens, position = np.array([1, 1]), layout.prompt_length - 1
    never, rng = np.full(bundle.manifest.config.layers, NEVER), np.random.default_rng(0)
    seconds = {100: [], 900: []}
    while position < 900 + AROUND:
        record = backend.decode(tokens, rng.integers(0, 1 << 24, (1, 1)), never)
        tokens = np.tile(record.codes[-1] + layout.code_offset, 2)
        for place, times in seconds.items():
            if place <= position < place + AROUND:
                times.append(record.seconds)
        position += 1
    milliseconds = {place: 1e3 * statistics.median(times) for place, times in seconds.items()}
    with capsys.disabled():
        print("\n" + json.dumps({"milliseconds_a_step": {k: round(v, 2) for k, v in milliseconds.items()}}))
    assert milliseconds[900] <= GROWTH * milliseconds[100]
