"""``car`` for all its 16 frames through the overlay's C++: codes, TAS, decisions and logits equal onnxruntime's."""

from __future__ import annotations

from pathlib import Path

import pytest

from fastcar.export.pipeline import export_model
from fastcar.toolkit.backends.registry import open_backend
from fastcar.toolkit.bundle.bundle import Bundle
from fastcar.toolkit.generation.agreement import Recorder, first_difference
from fastcar.toolkit.generation.run import generate
from fastcar.toolkit.settings import AttentionSettings, ReplaySettings

pytestmark = pytest.mark.hard

KINDS = {
    "dense": (None, None),
    "replay": (1.5, None),
    "replay, sinks and window": (1.5, AttentionSettings(4, 64)),
    "dense, window below a frame": (None, AttentionSettings(0, 40)),
}


@pytest.fixture(scope="module", params=["w8a8", "w4a8"])
def bundle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    folder: Path = tmp_path_factory.mktemp("car") / request.param
    return export_model("car", folder, recipe=request.param, board="kv260", evaluate=False)


@pytest.mark.parametrize("kind", KINDS)
def test_same_bits(bundle: Bundle, kind: str) -> None:
    threshold, attention = KINDS[kind]
    layers = bundle.manifest.config.layers
    replay = ReplaySettings() if threshold is None else ReplaySettings.uniform(threshold, layers)
    runs = [Recorder(open_backend(name, bundle)) for name in ("csim", "onnxruntime")]
    clips = [generate(bundle, "left turn", seed=3, replay=replay, attention=attention, backend=run) for run in runs]
    assert first_difference(*runs) is None
    assert bundle.manifest.sampling.guided and clips[0].codes.shape[1] == bundle.manifest.frame_layout.frames
    assert (clips[0].replay_ratio > 0.1) == (threshold is not None)
    assert clips[0].steps_per_second >= 20
