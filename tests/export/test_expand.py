"""4-bit weights multiplied out compute the same bits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from cli_runs import run

from fastcar import generate
from fastcar.export.pipeline import export_model
from fastcar.export.vila_u.synthetic import write_checkpoint
from fastcar.toolkit.bundle.bundle import BACKBONE, GOLDEN, Bundle
from fastcar.toolkit.settings import ReplaySettings


@pytest.mark.parametrize("kind", ["car", "depth transformer"])
def test_bits_are_those_of_the_four_bit_bundle(kind: str, car_like: Path, tmp_path: Path) -> None:
    source = car_like
    if kind != "car":
        source = tmp_path / "tiny"
        write_checkpoint(source, "tiny")
    tas_heads = "mean" if kind == "car" else "max"
    narrow = export_model(source, tmp_path / "narrow", recipe="w4a8-nearest", tas_heads=tas_heads, evaluate=False)
    result = run("expand", narrow.path, "--out", tmp_path / "wide")
    assert result.code == 0
    wide = Bundle.open(tmp_path / "wide")
    assert {linear.bit_width for _, linear in narrow.model()[0].linears()} == {4, 8}
    assert {linear.bit_width for _, linear in wide.model()[0].linears()} == {8}
    assert wide.manifest.tas_heads == tas_heads
    assert wide.manifest.files[GOLDEN] == narrow.manifest.files[GOLDEN]
    assert wide.manifest.files[BACKBONE] != narrow.manifest.files[BACKBONE]
    middle = (0.0,) * narrow.manifest.config.layers
    settings = {"frames": 2, "seed": 1, "record_logits": True, "replay": ReplaySettings(middle)}
    runs = [generate(bundle, bundle.prompts.known[0], **settings) for bundle in (narrow, wide)]
    assert 0 < runs[0].replay.mean() < 1
    for name in ("codes", "tas", "replay", "logits"):
        np.testing.assert_array_equal(getattr(runs[0], name), getattr(runs[1], name))


def test_eight_bits_are_refused(car_like: Path, tmp_path: Path) -> None:
    export_model(car_like, tmp_path / "b", recipe="w8a8", evaluate=False)
    result = run("expand", tmp_path / "b", "--out", tmp_path / "wide")
    assert result.code == 2 and "8-bit weights; expected a bundle with 4-bit weights" in result.error
    assert not (tmp_path / "wide").exists()
