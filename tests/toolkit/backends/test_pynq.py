"""The board's code path, through the real pynq package, against the emulated device."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
import time
import tracemalloc
from contextlib import closing
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from cli_runs import run
from safetensors.numpy import load_file

from fastcar.export.pipeline import export_model
from fastcar.overlays.bitfile import write_emulated_bitfile
from fastcar.overlays.design import INTERRUPTS, block_design
from fastcar.overlays.emulated.faults import Faults
from fastcar.overlays.hwh import handoff_text
from fastcar.overlays.load import load_engine
from fastcar.toolkit.backends.pynq import PynqBackend
from fastcar.toolkit.backends.registry import DeviceChoice, open_backend
from fastcar.toolkit.board.buffers import DeviceBuffer
from fastcar.toolkit.board.target import open_target
from fastcar.toolkit.bundle.bundle import Bundle
from fastcar.toolkit.cli.clip import generate_clip
from fastcar.toolkit.errors import DeviceError, FastCarError, OverlayError, UsageError
from fastcar.toolkit.generation.run import generate
from fastcar.toolkit.settings import AttentionSettings, ReplaySettings
from fastcar.toolkit.video.decode import FrameDecoder

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


@pytest.mark.parametrize("device", ["emulated", "emulated:by-calls"])
def test_bits_of_onnxruntime_and_equal_again(bundle: Bundle, expected, device: str) -> None:
    """Registers mapped, as on a board, and reached by calls."""
    backend = on_device(bundle, device)
    try:
        for _ in range(2):
            assert_equal(clip(bundle, backend), expected)
        assert backend.facts["waits_for"] == "interrupt" and not backend.facts["interrupts_lost"]
        assert expected.replay.any() and not expected.replay.all()
    finally:
        backend.close()


def test_columns_on_the_device(bundle: Bundle) -> None:
    settings = {"frames": 3, "attention": AttentionSettings(2, 20, 2), "record_logits": True}
    with closing(on_device(bundle)) as backend:
        found = generate(bundle, PROMPT, backend=backend, **settings)
    assert_equal(found, generate(bundle, PROMPT, backend="onnxruntime", **settings))


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
    began = time.monotonic()
    try:
        with pytest.raises(DeviceError) as caught:
            clip(bundle, backend)
        assert time.monotonic() - began < 10.0, "the deadline, and the work before the fault on a busy machine"
        assert "CTRL" in caught.value.dump and "steps_done" in caught.value.dump
        assert ("not done 2 s" if "hang" in fault else "BAD_TOKEN") in str(caught.value)
        assert_equal(clip(bundle, backend), expected)
    finally:
        backend.close()


def test_another_build(bundle: Bundle) -> None:
    error = refused(bundle, OverlayError, "emulated:build=abcd")
    assert "answers with build 0000abcd" in error.found and "CTRL" in error.dump


def test_another_build_half_way_keeps_the_finished_frames(bundle: Bundle) -> None:
    backend = on_device(bundle)
    faults = backend.session.target.device.faults
    try:
        found = generate(
            bundle, PROMPT, frames=3, seed=1, backend=backend,
            on_frame=lambda frame, codes: setattr(faults, "build", 0xABCD),
        )  # fmt: skip
        assert found.codes.shape[1] == 1
        assert "answers with build 0000abcd" in str(found.fault) and "steps_done" in found.fault.dump
    finally:
        backend.close()


def test_not_enough_contiguous_memory(bundle: Bundle) -> None:
    error = refused(bundle, DeviceError, "emulated:memory=0.01")
    assert "MiB free of 0.0 MiB" in error.found and "cma=" in error.fix


def test_a_flipped_bit_in_the_weights_is_found(bundle: Bundle) -> None:
    backend = on_device(bundle, "emulated:flip=5")
    try:
        backend.verify_memory()
        clip(bundle, backend)
        with pytest.raises(DeviceError, match=r"weights.bin in the device's memory: sha256") as caught:
            backend.verify_memory()
        assert "CTRL" in caught.value.dump
    finally:
        backend.close()


@pytest.mark.parametrize("name", ["program.bin", "weights.bin"])
def test_what_does_not_arrive_whole_is_found_at_load(
    bundle: Bundle, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, fill = open_target("emulated", bundle, None), DeviceBuffer.fill

    def fill_badly(buffer: DeviceBuffer, content: np.ndarray) -> None:
        target.device.faults.flip = 0 if buffer.name == name else None
        fill(buffer, content)

    monkeypatch.setattr(DeviceBuffer, "fill", fill_badly)
    with pytest.raises(DeviceError, match=f"{name} in the device's memory: sha256") as caught:
        PynqBackend(bundle, target)
    assert "CTRL" in caught.value.dump


@pytest.mark.parametrize("fault", ["build=abcd", "memory=0.01", "flip=0"])
def test_a_device_that_was_refused_is_usable_when_the_fault_is_gone(
    bundle: Bundle, expected, fault: str, tmp_path: Path
) -> None:
    """The very device, and while the error is kept."""
    made, bit = open_target("emulated", bundle, None), tmp_path / "fastcar.bit"
    for suffix in (".bit", ".hwh"):  # of the user's own: what the device brings along goes with the session
        shutil.copy(made.bit.with_suffix(suffix), bit.with_suffix(suffix))
    made.close()
    target = open_target(f"emulated:{fault}", bundle, bit)
    with pytest.raises(FastCarError):
        PynqBackend(bundle, target)
    device, sound = target.device, Faults(name=target.tag)
    vars(device.faults).update(vars(sound))
    device.memory.size = sound.memory
    backend = PynqBackend(bundle, target)
    try:
        assert_equal(clip(bundle, backend), expected)
    finally:
        backend.close()


def test_a_design_without_an_interrupt_is_polled(bundle: Bundle, expected, tmp_path: Path) -> None:
    design = block_design(load_engine("kv260"))
    root = ElementTree.fromstring(handoff_text(design).partition("?>")[2])
    modules = root.find("MODULES")
    modules.remove(modules.find(f"MODULE[@INSTANCE='{INTERRUPTS}']"))
    for parent in root.iter():
        for child in list(parent):
            if child.tag in ("PORT", "MEMRANGE") and (
                child.get("SIGIS") == "INTERRUPT" or child.get("INSTANCE") == INTERRUPTS
            ):
                parent.remove(child)
    bit = tmp_path / "fastcar.bit"
    write_emulated_bitfile(bit, design)
    ElementTree.ElementTree(root).write(bit.with_suffix(".hwh"))
    backend = on_device(bundle, overlay=bit)
    try:
        assert_equal(clip(bundle, backend), expected)
        assert backend.facts["waits_for"] == "polling" and backend.facts["interrupts_lost"] == 0
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


def test_a_failing_first_check_holds_nothing(bundle: Bundle, tmp_path: Path) -> None:
    """The second start is the golden prompt's; as in a notebook, the error is kept while the next session opens."""
    name = f"emulated:name={tmp_path.name}"
    kept = refused(bundle, DeviceError, f"{name},error=2")
    assert "BAD_TOKEN" in kept.found
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


def test_a_failing_device_keeps_the_finished_frames(bundle: Bundle, tmp_path: Path) -> None:
    """Probe, golden prompt and frame, then prompt and frame 0 are starts 1 to 5: the sixth is frame 1."""
    out = tmp_path / "clip"
    outcome = run(
        "generate", bundle.path, "--prompt", PROMPT, "--frames", 3, "--out", out, "--backend", "pynq",
        "--device", "emulated:error=6",
    )  # fmt: skip
    assert outcome.code == 3
    assert "stopped: kept the 1 finished frames" in outcome.stderr and "steps_done" in outcome.stderr
    assert outcome.stderr.splitlines()[-1].startswith("fastcar: engine: error BAD_TOKEN")
    result = json.loads((out / "result.json").read_text())
    assert result["summary"]["frames"] == 1 and "BAD_TOKEN" in result["fault"] and not result["interrupted"]
    assert (out / "video.mp4").exists()
    assert result["device"]["device"] == "emulated" and result["energy"] is None


def test_memory_verified_on_demand(bundle: Bundle, tmp_path: Path) -> None:
    common = ("generate", bundle.path, "--prompt", PROMPT, "--frames", 1, "--backend", "pynq", "--verify-memory")
    assert run(*common, "--device", "emulated", "--out", tmp_path / "good").code == 0
    outcome = run(*common, "--device", "emulated:flip=5", "--out", tmp_path / "bad")
    assert outcome.code == 3 and "weights.bin in the device's memory" in outcome.stderr
    assert (tmp_path / "bad/video.mp4").exists(), "kept all the same"
    assert run(*common[:-3], "--verify-memory", "--out", tmp_path / "other").code == 2


def test_host_time_of_a_frame(bundle: Bundle) -> None:
    """At a second a frame the host takes under 2 % of it; on a busy machine, in one of three clips."""
    shares = []
    for _ in range(3):
        backend = on_device(bundle, "emulated:pace=1")
        try:
            backend.start(1, 16, bundle.manifest.sampling, ReplaySettings())
            processor = time.thread_time()
            generate(bundle, PROMPT, frames=2, seed=1, backend=backend)
            assert (time.thread_time() - processor) / 3 < 0.02, "of the main thread, a start"
            shares.append(backend.facts["host_share"])
        finally:
            backend.close()
        if shares[-1] < 0.02:
            break
    assert min(shares) < 0.02


def test_memory_of_a_frame(bundle: Bundle) -> None:
    """Next to nothing is allocated between two frames, and no buffer."""
    backend = on_device(bundle, "emulated")
    peaks, before, buffers = [], [], []

    def on_frame(frame: int, codes: np.ndarray) -> None:
        peaks.append(tracemalloc.get_traced_memory()[1])
        buffers.append(backend.session.target.device.memory.buffers)
        tracemalloc.reset_peak()
        before.append(tracemalloc.get_traced_memory()[0])

    try:
        backend.start(1, 16, bundle.manifest.sampling, ReplaySettings())
        tracemalloc.start()
        generate(bundle, PROMPT, frames=3, seed=1, backend=backend, on_frame=on_frame)
        assert set(buffers) == {3}, "program, weights, state"
        assert all(peak - own < 64_000 for peak, own in zip(peaks[1:], before, strict=False))
    finally:
        tracemalloc.stop()
        backend.close()


def test_the_first_difference_is_named_on_the_device(bundle: Bundle) -> None:
    outcome = run("selftest", bundle.path, "--backend", "pynq", "--device", "emulated")
    assert outcome.code == 0, outcome.stderr
    outcome = run("selftest", bundle.path, "--backend", "pynq", "--device", "emulated:flip=2")
    assert outcome.code == 1 and "differs: " in outcome.stderr, outcome.stderr


def test_frames_are_decoded_while_the_next_is_generated(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each but the last before the next one is there: the device takes a fifth of a second a start."""
    decoded, seen = [], []
    decode = FrameDecoder.__call__

    def noting(decoder: FrameDecoder, codes: np.ndarray) -> np.ndarray:
        decoded.append(threading.get_ident())
        return decode(decoder, codes)

    monkeypatch.setattr(FrameDecoder, "__call__", noting)
    backend = on_device(bundle, "emulated:pace=0.2")

    def advance(label: str, done: int, total: int) -> None:
        seen.append((done, len(decoded)))

    try:
        generate_clip(
            bundle, [PROMPT], ReplaySettings(), 1, advance,
            frames=3, sampling=bundle.manifest.sampling, backend=backend,
        )  # fmt: skip
    finally:
        backend.close()
    assert all(before >= done - 1 for done, before in seen[1:]) and len(decoded) == 3
    assert threading.get_ident() not in decoded


def test_what_is_left_over_from_a_run_is_found(bundle: Bundle) -> None:
    outcome = run("selftest", bundle.path, "--backend", "pynq", "--device", "emulated:leftover")
    assert outcome.code == 1 and "differs: " in outcome.stderr
    assert "build_id" in outcome.stderr and "steps_done" in outcome.stderr, "the registers"


def test_an_engine_that_cannot_be_reset(bundle: Bundle, expected) -> None:
    """The next session finds it busy, and says so within the deadline of a probe."""
    backend = on_device(bundle, "emulated:hang=5,no-reset", deadline=1.0)
    try:
        with pytest.raises(DeviceError) as caught:
            clip(bundle, backend)
        assert caught.value.fix.startswith("Run again: that loads the overlay afresh")
    finally:
        backend.close()


def test_an_old_description_that_pynq_kept(bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fastcar.overlays.emulated.device import EmulatedDevice

    old = tmp_path / "old.hwh"
    text = handoff_text(block_design(load_engine("kv260")))
    old.write_text(text.replace('NAME="ADDRESS_OFFSET" VALUE="16"', 'NAME="ADDRESS_OFFSET" VALUE="24"'))
    read = EmulatedDevice.get_bitfile_metadata
    monkeypatch.setattr(EmulatedDevice, "get_bitfile_metadata", lambda device, path, partial=False: read(device, old))
    assert refused(bundle, OverlayError).found == "PYNQ describes another design"


def test_another_overlay_loaded_meanwhile(bundle: Bundle, expected) -> None:
    import pynq

    backend = on_device(bundle)
    try:
        target = backend.session.target
        pynq.Overlay(str(target.bit), device=target.device)
        with pytest.raises(DeviceError, match="another one was loaded since"):
            clip(bundle, backend)
    finally:
        backend.close()
    backend = on_device(bundle)
    assert_equal(clip(bundle, backend), expected)
    backend.close()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("<EXTERNALPORTS />", ""),
        ('INSTANCE="processor" PORT="pl_ps_irq0"', 'INSTANCE="none" PORT="pl_ps_irq0"'),
        ('FULLNAME="/engine"', ""),
        ('NAME="irq" DIR="O"', 'NAME="irq"'),
    ],
)
def test_a_handoff_that_pynq_cannot_read(bundle: Bundle, tmp_path: Path, old: str, new: str) -> None:
    """Whatever its parser makes of it: one line, and the device is free again."""
    bit = tmp_path / "fastcar.bit"
    design = block_design(load_engine("kv260"))
    write_emulated_bitfile(bit, design)
    text = handoff_text(design)
    assert old in text
    bit.with_suffix(".hwh").write_text(text.replace(old, new))
    for _ in range(2):
        error = refused(bundle, DeviceError, "emulated:name=handoff", overlay=bit)
        assert error.subject == str(bit) and "fastcar.hwh" in error.fix


def test_more_rows_than_the_engine_has_are_refused_first(bundle: Bundle, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("fastcar.toolkit.cli.generate.open_backend", lambda *_, **__: pytest.fail("opened"))
    for backend in ("pynq", "csim"):
        prompts = ("--prompt", PROMPT, "--prompt", "slow")
        found = run("generate", bundle.path, *prompts, "--out", tmp_path / "out", "--backend", backend)
        assert found.code == 2 and "4 rows (2 clips, twice with guidance); expected at most 2" in found.error
    assert not (tmp_path / "out").exists()


def test_what_was_made_for_the_occasion_goes_with_the_session(bundle: Bundle) -> None:
    backend = on_device(bundle)
    folder = backend.session.target.bit.parent
    assert folder.is_dir()
    backend.close()
    assert not folder.exists()


def test_a_golden_clip_that_fails_leaves_the_device_free(bundle: Bundle) -> None:
    """Whoever keeps the error, as a notebook does, keeps its frames with all that is in them."""
    kept = [refused(bundle, DeviceError, f"emulated:name=golden,hang={start}", deadline=0.1) for start in (2, 3)]
    on_device(bundle, "emulated:name=golden").close()
    assert all(error.__traceback__ for error in kept)


def test_python_that_takes_warnings_for_errors(bundle: Bundle, tmp_path: Path) -> None:
    """PYNQ's own imports warn."""
    command = [sys.executable, "-W", "error", "-m", "fastcar", "generate", str(bundle.path), "--prompt", PROMPT]
    command += ["--frames", "1", "--backend", "pynq", "--device", "emulated:hang=2", "--deadline", "0.1"]
    done = subprocess.run([*command, "--out", str(tmp_path / "out")], capture_output=True, text=True)
    assert done.returncode == 3 and "Warning" not in done.stderr, done.stderr
