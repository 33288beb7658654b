"""The board's code path, through the real pynq package, against the emulated device."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from cli_runs import run
from safetensors.numpy import load_file

from fastcar.export.pipeline import export_model
from fastcar.overlays.bitfile import write_emulated_bitfile
from fastcar.overlays.design import block_design
from fastcar.overlays.hwh import handoff_text
from fastcar.overlays.load import load_engine
from fastcar.toolkit.backends.registry import DeviceChoice, open_backend
from fastcar.toolkit.bundle.bundle import Bundle
from fastcar.toolkit.errors import DeviceError, FastCarError, OverlayError, UsageError
from fastcar.toolkit.generation.run import generate
from fastcar.toolkit.settings import ReplaySettings

PROMPT = "left turn"


@pytest.fixture(scope="module")
def bundle(car_like: Path, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    folder = tmp_path_factory.mktemp("packed") / "kv260"
    return export_model(car_like, folder, recipe="w4a8", board="kv260", evaluate=False)


def on_device(bundle: Bundle, device: str = "emulated", deadline: float | None = None, overlay: Path | None = None):
    return open_backend("pynq", bundle, device=DeviceChoice(device, overlay, deadline))


def clip(bundle: Bundle, backend: object, frames: int = 3):
    replay = ReplaySettings.uniform(0.0, bundle.manifest.config.layers)
    return generate(bundle, PROMPT, frames=frames, seed=1, replay=replay, backend=backend, record_logits=True)


@pytest.fixture(scope="module")
def expected(bundle: Bundle):
    return clip(bundle, "onnxruntime")


def assert_equal(found, expected) -> None:
    for name in ("codes", "replay", "logits", "tas"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


def refused(bundle: Bundle, kind: type[FastCarError], *arguments, **options) -> FastCarError:
    with pytest.raises(kind) as caught:
        on_device(bundle, *arguments, **options)
    assert "\n" not in str(caught.value)
    return caught.value


def test_bits_of_onnxruntime_and_equal_again(bundle: Bundle, expected) -> None:
    backend = on_device(bundle)
    try:
        for _ in range(2):
            assert_equal(clip(bundle, backend), expected)
        assert backend.facts["waits_for"] == "interrupt" and not backend.facts["interrupts_lost"]
        assert expected.replay.any() and not expected.replay.all()
    finally:
        backend.close()


def test_lost_interrupts_are_survived(bundle: Bundle, expected) -> None:
    backend = on_device(bundle, "emulated:no-interrupt")
    try:
        assert_equal(clip(bundle, backend), expected)
        assert backend.facts["waits_for"] == "polling" and backend.facts["interrupts_lost"] == 2
    finally:
        backend.close()


@pytest.mark.parametrize("fault", ["hang=5", "error=5"])
def test_a_failing_start_tells_the_registers_and_leaves_the_device_usable(bundle: Bundle, expected, fault: str) -> None:
    backend = on_device(bundle, f"emulated:{fault}", deadline=2.0)
    try:
        with pytest.raises(DeviceError) as caught:
            clip(bundle, backend)
        assert "CTRL" in caught.value.dump and "steps_done" in caught.value.dump
        assert ("not done 2 s" if "hang" in fault else "BAD_TOKEN") in str(caught.value)
        assert_equal(clip(bundle, backend), expected)
    finally:
        backend.close()


def test_another_build(bundle: Bundle) -> None:
    assert "answers with build 0000abcd" in refused(bundle, OverlayError, "emulated:build=abcd").found


def test_not_enough_contiguous_memory(bundle: Bundle) -> None:
    error = refused(bundle, DeviceError, "emulated:memory=0.01")
    assert "MiB free of 0.0 MiB" in error.found and "cma=" in error.fix


def test_a_flipped_bit_in_the_weights_is_found(bundle: Bundle) -> None:
    backend = on_device(bundle, "emulated:flip=5")
    try:
        backend.verify_memory()
        clip(bundle, backend)
        with pytest.raises(DeviceError, match=r"weights.bin in the device's memory: sha256"):
            backend.verify_memory()
    finally:
        backend.close()


def test_one_session_a_device(bundle: Bundle, tmp_path: Path) -> None:
    name = f"emulated:name={tmp_path.name}"
    first = on_device(bundle, name)
    try:
        assert "in use by process" in refused(bundle, DeviceError, name).found
    finally:
        first.close()
    on_device(bundle, name).close()


def test_handoff_of_another_build(bundle: Bundle, tmp_path: Path) -> None:
    own, other = (block_design(load_engine(name)) for name in ("kv260", "kv260-batch"))
    bit = tmp_path / "fastcar.bit"
    write_emulated_bitfile(bit, own)
    bit.with_suffix(".hwh").write_text(handoff_text(other))
    assert "of design" in refused(bundle, OverlayError, overlay=bit).found
    write_emulated_bitfile(bit, other)
    assert refused(bundle, OverlayError, overlay=bit).found == f"build {other.build_id:08x}"


@pytest.mark.parametrize("device", ["card", "emulated:hang", "emulated:nothing=1", "board:hang=1"])
def test_unknown_device(bundle: Bundle, device: str) -> None:
    refused(bundle, UsageError, device)


def test_command_line(bundle: Bundle, tmp_path: Path) -> None:
    common = ("--prompt", PROMPT, "--frames", 2, "--threshold", 0)
    for backend, more in (("pynq", ("--device", "emulated")), ("onnxruntime", ())):
        outcome = run("generate", bundle.path, *common, "--out", tmp_path / backend, "--backend", backend, *more)
        assert outcome.code == 0, outcome.stderr
    codes = [load_file(tmp_path / name / "run.safetensors")["codes"] for name in ("pynq", "onnxruntime")]
    np.testing.assert_array_equal(*codes)
    assert json.loads((tmp_path / "pynq/result.json").read_text())["backend"] == "pynq"
