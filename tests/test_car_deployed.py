"""The model that comes with the project, through the whole chain: quality kept, and the same bits in both back ends."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from fastcar.export.importers import load_model
from fastcar.export.overlay.compile import pack_model
from fastcar.export.pipeline import export_model
from fastcar.overlays import load_engine
from fastcar.toolkit.backends.golden import check_golden
from fastcar.toolkit.backends.registry import DeviceChoice, open_backend
from fastcar.toolkit.bundle.bundle import GOLDEN, Bundle
from fastcar.toolkit.generation.agreement import Recorder, first_difference
from fastcar.toolkit.generation.run import generate
from fastcar.toolkit.generation.score import cross_entropy
from fastcar.toolkit.settings import AttentionSettings, ReplaySettings

CLIPS = 8  # as many as export records the cross-entropy of
ALLOWED = {"w8a8": 0.5, "w4a8": 2.0}  # percent above the float model


@pytest.fixture(scope="module", params=ALLOWED)
def bundle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return export_model("car", tmp_path_factory.mktemp("car") / request.param, recipe=request.param, board="kv260")


def test_packing_adds_next_to_nothing(bundle: Bundle):
    """Of weights.bin at most 1 % carries nothing, and the engine's ports read it all."""
    packed = pack_model(bundle.model()[0], load_engine("kv260").config)
    assert packed.padding < 0.01
    assert np.array_equal(packed.weights, bundle.packed().weights)
    assert bundle.packed().build_id == load_engine("kv260").config.build_id


def test_quality_is_kept(bundle: Bundle):
    """Held-out cross-entropy, of Brevitas's fake-quantized network and of the integers that are deployed."""
    record, recipe = bundle.manifest.record, bundle.manifest.recipe["name"]
    assert abs(record["cross_entropy_change_percent"]) <= ALLOWED[recipe]
    tokens = load_model("car").held_out[:CLIPS].numpy()
    deployed = cross_entropy(open_backend("onnxruntime", bundle), tokens)
    assert deployed <= record["cross_entropy_fp32"] * (1 + ALLOWED[recipe] / 100)
    assert deployed == pytest.approx(record["cross_entropy_quantized"], rel=2e-3)


@pytest.mark.parametrize("kind", ["dense", "replay"])
def test_a_whole_clip_has_the_same_bits(bundle: Bundle, kind: str):
    """All frames, guidance on: codes, TAS, decisions and logits of onnxruntime equal the NumPy reference's."""
    assert bundle.manifest.sampling.guided
    layers = bundle.manifest.config.layers
    replay = ReplaySettings() if kind == "dense" else ReplaySettings.uniform(1.5, layers)
    runs = [
        generate(bundle, "left turn", seed=3, replay=replay, backend=name, record_logits=True)
        for name in ("onnxruntime", "reference")
    ]
    for name in ("codes", "tas", "replay", "logits"):
        np.testing.assert_array_equal(getattr(runs[0], name), getattr(runs[1], name), err_msg=name)
    assert runs[0].codes.shape == (1, bundle.manifest.frame_layout.frames, 64)
    assert (0.2 < runs[0].eligible_replay_ratio < 0.98) if kind == "replay" else not runs[0].replay.any()


@pytest.mark.parametrize("kind", ["dense", "replay", "window"])
def test_the_overlay_computes_the_same_bits(bundle: Bundle, kind: str):
    """Two frames through the overlay's C++, at the speed a person can wait for; whole clips: tests/hard."""
    threshold = None if kind == "dense" else 1.5
    attention = AttentionSettings(4, 48) if kind == "window" else None
    replay = ReplaySettings.uniform(threshold, bundle.manifest.config.layers)
    runs = [Recorder(open_backend(name, bundle)) for name in ("csim", "onnxruntime")]
    for run in runs:
        clip = generate(bundle, "left turn", frames=2, seed=3, replay=replay, attention=attention, backend=run)
    assert first_difference(*runs) is None
    assert clip.replay.any() == (threshold is not None)


def test_a_clip_through_pynq(bundle: Bundle):
    """The board's code path, by the real pynq package, on the emulated device; all frames of the first recipe."""
    replay = ReplaySettings.uniform(1.5, bundle.manifest.config.layers)
    frames = bundle.manifest.frame_layout.frames if bundle.manifest.recipe["name"] == "w8a8" else 4
    device = open_backend("pynq", bundle, device=DeviceChoice("emulated"))
    with closing(device):
        runs = [
            generate(bundle, "left turn", frames=frames, seed=3, replay=replay, backend=backend, record_logits=True)
            for backend in (device, "onnxruntime")
        ]
        assert device.facts["waits_for"] == "interrupt" and device.facts["host_share"] < 0.02
    for name in ("codes", "tas", "replay", "logits"):
        np.testing.assert_array_equal(getattr(runs[0], name), getattr(runs[1], name), err_msg=name)
    assert runs[0].codes.shape == (1, frames, 64)


def test_the_golden_clip_is_what_onnxruntime_computes(bundle: Bundle):
    """The whole record, not only the steps compared at every start."""
    assert check_golden(open_backend("onnxruntime", bundle), Path(bundle.path) / GOLDEN) == 64 + 8
