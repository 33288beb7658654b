"""What a user may get wrong: exit code 2, one line with the fix, before any work, nothing left behind."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path

import pytest
from car_like import LAYOUT, copy_of, damaged_checkpoint, edit_manifest
from cli_runs import Outcome, run

from fastcar.export import pipeline
from fastcar.toolkit.backends import protocol
from fastcar.toolkit.bundle.bundle import DECODER, MANIFEST, WEIGHTS, Bundle
from fastcar.toolkit.cli import app


@pytest.fixture(autouse=True)
def no_work(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch):
    """No step of a clip and no quantization may run, but in tests of what happens while they do."""
    if "while" not in request.node.name:
        fail = lambda *_, **__: pytest.fail("no work may start")
        monkeypatch.setattr(protocol.SteppingBackend, "prefill", fail)
        monkeypatch.setattr(pipeline, "LayerQuantizer", fail)


def refused(outcome: Outcome, *words: str, code: int = 2) -> None:
    """One line on stderr with all of ``words``, nothing on stdout."""
    assert outcome.code == code, outcome.stderr
    assert outcome.error.startswith("fastcar: ")
    for word in words:
        assert word in outcome.error, f"{word!r} in {outcome.error!r}"
    assert not outcome.stdout


GENERATE = [
    (("--prompt", ""), ("--prompt", "an empty prompt", "'straight'")),
    (("--prompt", " \t"), ("--prompt", "an empty prompt")),
    (("--prompt", "lef turn"), ("unknown word 'lef'", "braking, left", "Did you mean 'left'?")),
    (("--prompt", "xyzzy"), ("unknown word 'xyzzy'", "sharp", "Known prompts: straight, left turn")),
    (("--prompt", "лево"), ("unknown word 'лево'",)),
    (("--prompt", "[bold]left[/bold]"), ("unknown word '[bold]left[/bold]'",)),
    (("--prompt", "left\nturn\nleft left"), ("4 words", "at most 3", "Shorten")),
    (("--prompt", "slow", "--prompt", ""), ("an empty prompt",)),
    ((), ("Missing option '--prompt'", "fastcar generate --help")),
    (("--prompt", "slow", "--threshold", "1,2,3"), ("--threshold", "3 values", "1 or 2")),
    (("--prompt", "slow", "--threshold", "1,sometimes"), ("sometimes", "never or always")),
    (("--prompt", "slow", "--refresh", 1), ("--refresh: 1", "every other frame")),
    (("--prompt", "slow", "--refresh", 2, "--replay-ratio", 0.9), ("at most 0.50 with --refresh 2 in 5 frames",)),
    (("--prompt", "slow", "--hold-replay-ratio", 1.5), ("--hold-replay-ratio: 1.5",)),
    (("--prompt", "slow", "--hold-replay-ratio", 0.5, "--dense"), ("--hold-replay-ratio", "more than one")),
    (("--prompt", "slow", "--hold-frame-time", 1), ("--hold-frame-time", "packed for no board")),
    (("--prompt", "slow", "--frames", 0), ("--frames: 0", f"1 to {LAYOUT.frames}", "at least one")),
    (("--prompt", "slow", "--frames", -1), ("--frames: -1", f"1 to {LAYOUT.frames}")),
    (("--prompt", "slow", "--frames", 6), ("--frames: 6", f"1 to {LAYOUT.frames}", "fewer")),
    (("--prompt", "slow", "--frames", 10**30), ("--frames", "fewer")),
    (("--prompt", "slow", "--frames", 2.5), ("--frames", "2.5")),
    (("--prompt", "slow", "--frames", "many"), ("--frames", "many")),
    (("--prompt", "slow", "--seed", -1), ("--seed: -1", "2^64 - 1")),
    (("--prompt", "slow", "--seed", 2**64), ("--seed", "2^64 - 1")),
    (("--prompt", "slow", "--seed", -1, "--replay-ratio", 0.5), ("--seed: -1",)),
    (("--prompt", "slow", "--seed", "x"), ("--seed", "'x'")),
    (("--prompt", "slow", "--temperature", -1), ("--temperature: -1", "greedy")),
    (("--prompt", "slow", "--temperature", "nan"), ("--temperature: nan",)),
    (("--prompt", "slow", "--temperature", 1e-300), ("--temperature: 1e-300",)),
    (("--prompt", "slow", "--temperature", "inf"), ("--temperature: inf",)),
    (("--prompt", "slow", "--top-k", -3), ("--top-k: -3",)),
    (("--prompt", "slow", "--top-k", 10**30), ("--top-k",)),
    (("--prompt", "slow", "--top-p", 0), ("--top-p: 0", "probability")),
    (("--prompt", "slow", "--top-p", 1.5), ("--top-p: 1.5",)),
    (("--prompt", "slow", "--guidance", "nan"), ("--guidance: nan",)),
    (("--prompt", "slow", "--guidance", -2), ("--guidance: -2",)),
    (("--prompt", "slow", "--threshold", "nan"), ("--threshold: nan", "a number")),
    (("--prompt", "slow", "--threshold", "high"), ("--threshold", "'high'")),
    (("--prompt", "slow", "--replay-ratio", 1.5), ("--replay-ratio: 1.5", "0 (dense) to 1")),
    (("--prompt", "slow", "--replay-ratio", "nan"), ("--replay-ratio: nan",)),
    (("--prompt", "slow", "--replay-ratio", "80%"), ("--replay-ratio", "80%")),
    (("--prompt", "slow", "--replay-ratio", 0.5, "--frames", 1), ("--frames: 1", "at least 2")),
    (
        ("--prompt", "slow", "--replay-ratio", 0.9, "--max-age", 1),
        ("--replay-ratio: 0.9", "at most 0.50", "--max-age 1"),
    ),
    (("--prompt", "slow", "--dense", "--threshold", 0), ("--dense, --threshold", "Drop the others")),
    (("--prompt", "slow", "--threshold", 0, "--replay-ratio", 0), ("more than one",)),
    (("--prompt", "slow", "--prompt", "slow", "--compare"), ("--compare: 2 prompts",)),
    (("--prompt", "slow", "--policy", "most"), ("--policy: most", "independent, mean, all")),
    (("--prompt", "slow", "--max-age", 0), ("--max-age: 0",)),
    (("--prompt", "slow", "--max-age", 10**12), ("--max-age",)),
    (("--prompt", "slow", "--attention-window", 0), ("--attention-window: 0", "a positive number")),
    (("--prompt", "slow", "--attention-window", -5), ("--attention-window: -5",)),
    (("--prompt", "slow", "--attention-window", 10**12), ("--attention-window",)),
    (("--prompt", "slow", "--attention-window", "all"), ("--attention-window", "'all'")),
    (("--prompt", "slow", "--attention-window", "1.5f"), ("--attention-window", "'1.5f'", "of frames, such as 2f")),
    (("--prompt", "slow", "--attention-window", "0f"), ("--attention-window: 0f", "a positive number")),
    (("--prompt", "slow", "--attention-window", "1f", "--attention-columns", 65), ("--attention-columns: 65", "64")),
    (("--prompt", "slow", "--attention-window", 4, "--attention-columns", "x"), ("--attention-columns", "'x'")),
    (("--prompt", "slow", "--attention-columns", 2), ("--attention-columns: 2 without a window", "Add")),
    (("--prompt", "slow", "--attention-window", 4, "--attention-sinks", -1), ("--attention-sinks: -1",)),
    (("--prompt", "slow", "--attention-window", 4, "--attention-sinks", 1.5), ("--attention-sinks", "1.5")),
    (
        ("--prompt", "slow", "--attention-sinks", 4),
        ("--attention-sinks: 4 without a window", "Add --attention-window, or drop --attention-sinks"),
    ),
    (("--prompt", "slow", "--backend", "cuda"), ("--backend: 'cuda'", "onnxruntime, reference")),
    (("--prompt", "slow", "--threads", 0), ("--threads", "0")),
    (("--prompt", "slow", "--threads", 10**6), ("--threads",)),
    (("--prompt", "slow", "--speed", 3), ("No such option", "--speed")),
    (("--prompt", "slow", "surplus"), ("surplus",)),
]


@pytest.mark.parametrize(("options", "words"), GENERATE, ids=lambda value: " ".join(map(str, value))[:40])
def test_generate_refuses(bundle_w8a8: Path, tmp_path: Path, options: tuple, words: tuple[str, ...]):
    refused(run("generate", bundle_w8a8, *options, "--out", tmp_path / "new" / "out"), *words)
    assert not list(tmp_path.iterdir())


def test_generate_refuses_the_same_way_with_json(bundle_w8a8: Path, tmp_path: Path):
    refused(run("generate", bundle_w8a8, "--prompt", "", "--json", "--out", tmp_path / "out"), "an empty prompt")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:100])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


DAMAGE = {
    "missing": (WEIGHTS, Path.unlink, (WEIGHTS, "missing")),
    "truncated": (DECODER, cut, (DECODER, "100 bytes")),
    "altered": (WEIGHTS, flip, (WEIGHTS, "sha256", "altered")),
    "no JSON": (MANIFEST, lambda path: path.write_text("{"), (MANIFEST, "a manifest of schema 1")),
    "no manifest": (MANIFEST, Path.unlink, (MANIFEST, "no such file", "fastcar export")),
    "later schema": (MANIFEST, lambda path: edit_manifest(path.parent, schema=2), (MANIFEST, "schema 2")),
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("command", ["generate", "inspect"])
def test_a_damaged_bundle_is_refused(bundle_w8a8: Path, tmp_path: Path, damage: str, command: str):
    name, change, words = DAMAGE[damage]
    folder = copy_of(bundle_w8a8, tmp_path / "copy")
    change(folder / name)
    options = ("--prompt", "slow", "--out", tmp_path / "out") if command == "generate" else ("--json",)
    refused(run(command, folder, *options), str(folder / name), *words)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("command", ["generate", "inspect"])
def test_what_is_not_a_bundle_is_refused(tmp_path: Path, command: str):
    (tmp_path / "file").write_text("text")
    options = ("--prompt", "slow", "--out", tmp_path / "out") if command == "generate" else ()
    for path, words in (
        (tmp_path / "nowhere", ("no such folder", "fastcar export")),
        (tmp_path, (MANIFEST, "no such file")),
        (tmp_path / "file", ("not a zip file", "a bundle folder or archive")),
        (tmp_path / ("n" * 300), ("too long",)),
        ("", (MANIFEST,)),
    ):
        refused(run(command, path, *options), *words)


def full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: namedtuple("usage", "total used free")(1 << 40, 1 << 40, 100))


@pytest.mark.parametrize("place", ["file/out", "file", "/proc/out", "n" * 300])
@pytest.mark.parametrize("command", ["generate", "export", "demo"])
def test_a_place_that_cannot_be_written_is_refused(
    bundle_w8a8: Path, car_like: Path, tmp_path: Path, place: str, command: str
):
    (tmp_path / "file").write_text("")
    source = {
        "generate": ("generate", bundle_w8a8, "--prompt", "slow"),
        "export": ("export", car_like),
        "demo": ("demo", "--model", car_like),
    }[command]
    refused(run(*source, "--out", tmp_path / place), "expected", "Choose another")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("command", ["generate", "export", "demo"])
def test_a_full_disk_is_refused(
    bundle_w8a8: Path, car_like: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
):
    full_disk(monkeypatch)
    source = {
        "generate": ("generate", bundle_w8a8, "--prompt", "slow"),
        "export": ("export", car_like),
        "demo": ("demo", "--model", car_like),
    }[command]
    refused(run(*source, "--out", tmp_path / "new" / "out"), str(tmp_path / "new"), "MiB free", "Free some space")
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_is_refused(bundle_w8a8: Path, tmp_path: Path):
    tmp_path.chmod(0o555)
    refused(run("generate", bundle_w8a8, "--prompt", "slow", "--out", tmp_path / "out"), "permission denied")


EXPORT = [
    (("cra",), ("cra", "no such folder", "one of: car")),
    (("{ck}/backbone.safetensors",), ("is a file",)),
    (("{ck}/..",), ("config.json", "missing")),
    (("{ck}", "--recipe", "w2a2"), ("recipe: 'w2a2'", "w8a8, w4a8")),
    (("{ck}", "--recipe", ""), ("recipe: ''",)),
    (("{ck}", "--tas-query", "mid_rope"), ("--tas-query", "mid_rope", "post_rope")),
    (("{ck}", "--tas-heads", "median"), ("--tas-heads", "median", "mean", "max", "min")),
    (("{ck}", "--tas-head-weights", "{tmp}/none.json"), ("--tas-head-weights", "none.json", "No such file")),
    (("{ck}", "--tas-head-weights", "{ck}/config.json"), ("--tas-head-weights", "other things than lists")),
    (("{ck}", "--tas-head-weights", "w.json", "--tas-heads", "min"), ("--tas-head-weights", "only a mean")),
    ((), ("Missing argument 'MODEL'",)),
    (("{ck}", "--fast"), ("No such option", "--fast")),
    (("{ck}", "--archive", "{tmp}"), ("a folder; expected the name of a file",)),
    (("{ck}", "--archive", "{tmp}/out"), ("the name of a file",)),
    (("{ck}", "--archive", "/proc/x/car.fastcar"), ("/proc/x", "a folder that can be written")),
]


@pytest.mark.parametrize(("arguments", "words"), EXPORT, ids=lambda value: " ".join(map(str, value))[:40])
def test_export_refuses(
    car_like: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple, words: tuple[str, ...]
):
    monkeypatch.chdir(tmp_path)
    filled = [argument.format(ck=car_like, tmp=tmp_path) for argument in arguments]
    refused(run("export", *filled, "--out", tmp_path / "out"), *words)
    assert not list(tmp_path.iterdir())


def test_export_refuses_without_out(car_like: Path):
    refused(run("export", car_like), "Missing option '--out'", "fastcar export --help")


@pytest.mark.parametrize("command", ["export", "demo"])
def test_a_weight_that_is_not_finite_is_refused(car_like: Path, tmp_path: Path, command: str):
    name = "model.layers.1.self_attn.v_proj.weight"
    folder = damaged_checkpoint(car_like, tmp_path / "nan", "backbone.safetensors", name, (3, 1), float("nan"))
    model = (folder,) if command == "export" else ("--model", folder)
    refused(run(command, *model, "--out", tmp_path / "new" / "out"), "backbone.safetensors", f"{name}[3, 1] is nan")
    assert [path.name for path in tmp_path.iterdir()] == ["nan"]


def test_another_format_is_refused(tmp_path: Path):
    (tmp_path / "ck").mkdir()
    (tmp_path / "ck" / "config.json").write_text('{"model_type": "llama"}')
    refused(run("export", tmp_path / "ck", "--out", tmp_path / "out"), "config.json", "fastcar.checkpoint", "Convert")


def test_what_exists_is_not_replaced_unasked(car_like: Path, bundle_w8a8: Path, tmp_path: Path):
    (tmp_path / "archive").write_text("mine")
    (tmp_path / "folder").mkdir()
    refused(run("export", car_like, "--out", bundle_w8a8), str(bundle_w8a8), "exists already", "--overwrite")
    refused(run("export", car_like, "--out", tmp_path / "folder", "--overwrite"), "exists already")
    refused(run("export", car_like, "--out", tmp_path / "b", "--archive", tmp_path / "archive"), "exists already")
    refused(run("demo", "--model", car_like, "--out", tmp_path / "archive"), "is a file")
    assert (tmp_path / "archive").read_text() == "mine" and not (tmp_path / "b").exists()


DEMO = [
    (("--prompt", "upwards"), ("unknown word 'upwards'",)),
    (("--prompt", ""), ("an empty prompt",)),
    (("--frames", 0), ("--frames: 0",)),
    (("--frames", 1), ("--frames: 1", "at least 2")),
    (("--frames", 99), ("--frames: 99",)),
    (("--seed", -5), ("--seed: -5",)),
    (("--replay-ratio", 2), ("--replay-ratio: 2",)),
    (("--policy", "some"), ("--policy: some",)),
    (("--recipe", "w1"), ("recipe: 'w1'",)),
    (("--model", "nowhere"), ("no such folder", "one of: car")),
]


@pytest.mark.parametrize(("options", "words"), DEMO, ids=lambda value: " ".join(map(str, value))[:40])
def test_the_demo_refuses_before_the_export(car_like: Path, tmp_path: Path, options: tuple, words: tuple[str, ...]):
    refused(run("demo", "--model", car_like, "--out", tmp_path / "demo", *options), *words)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("exprot",), ("No such command 'exprot'", "export, generate, sweep, csim, plan, ")),
        (("--colour",), ("No such option", "--colour")),
        (("inspect",), ("Missing argument 'BUNDLE'",)),
        (("train", "lorry", "--out", "x", "--work", "y"), ("'lorry'", "car")),
        (("train", "car"), ("Missing option",)),
    ],
)
def test_usage(arguments: tuple[str, ...], words: tuple[str, ...]):
    refused(run(*arguments), *words)


def test_a_missing_package_names_the_extra(car_like: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def needs(name: str) -> Callable[..., None]:
        def fail(*_: object, **__: object) -> None:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

        return fail

    for name, extra in (("torch", "export"), ("onnx_ir.tape", "export"), ("onnxruntime", "emulate")):
        monkeypatch.setattr(app.cli, "main", needs(name))
        refused(run("export", car_like, "--out", tmp_path / "x"), name, f"pip install 'fastcar-edge[{extra}]'")
    monkeypatch.setattr(app.cli, "main", needs("antigravity"))
    refused(run("inspect", "x"), "internal error", "antigravity", "FASTCAR_DEBUG", code=1)


def test_a_fault_of_ours_is_named_as_such(monkeypatch: pytest.MonkeyPatch):
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a\nb")

    monkeypatch.setattr(app.cli, "main", fail)
    refused(run("inspect", "x"), "internal error: ZeroDivisionError: a b", "FASTCAR_DEBUG=1", code=1)
    monkeypatch.setenv("FASTCAR_DEBUG", "1")
    assert "Traceback" in run("inspect", "x").stderr


# What happens while work is done.


def interrupting(monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """Ctrl-C in the ``at``-th call of decode from now; two of them are the check of the back end's start."""
    decode, calls = protocol.SteppingBackend.decode, []

    def counted(*arguments: object) -> object:
        calls.append(arguments)
        if len(calls) == at:
            raise KeyboardInterrupt
        return decode(*arguments)

    monkeypatch.setattr(protocol.SteppingBackend, "decode", counted)


CHECK = 1  # decode calls before the first frame of a run


def test_ctrl_c_while_generating_keeps_the_finished_frames(
    bundle_w8a8: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    interrupting(monkeypatch, CHECK + 3)
    outcome = run("generate", bundle_w8a8, "--prompt", "slow", "--json", "--out", tmp_path / "out")
    result = json.loads(outcome.stdout)
    assert outcome.code == 130 and result["interrupted"] is True and result["summary"]["frames"] == 2
    assert outcome.error == "interrupted: kept the 2 finished frames"
    assert (tmp_path / "out" / "video.mp4").stat().st_size > 0


def test_ctrl_c_while_the_first_frame_is_made_leaves_nothing(
    bundle_w8a8: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    interrupting(monkeypatch, CHECK + 1)
    refused(
        run("generate", bundle_w8a8, "--prompt", "slow", "--out", tmp_path / "new" / "out"), "interrupted", code=130
    )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("at", [1, 3])
def test_ctrl_c_while_comparing_keeps_the_replay_run(
    bundle_w8a8: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
):
    interrupting(monkeypatch, CHECK + LAYOUT.frames + at)
    options = ("--prompt", "slow", "--threshold", -0.6, "--compare", "--out", tmp_path)
    outcome = run("generate", bundle_w8a8, *options)
    assert outcome.code == 130 and "no report.html" in outcome.error
    assert (tmp_path / "video.mp4").is_file() and not (tmp_path / "report.html").exists()
    assert json.loads((tmp_path / "result.json").read_text())["summary"]["frames"] == LAYOUT.frames


def test_ctrl_c_while_the_threshold_is_sought_leaves_nothing(
    bundle_w8a8: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    interrupting(monkeypatch, CHECK + 3)
    options = ("--prompt", "slow", "--replay-ratio", 0.5, "--out", tmp_path / "out")
    refused(run("generate", bundle_w8a8, *options), "interrupted", code=130)
    assert not list(tmp_path.iterdir())


def test_ctrl_c_while_exporting_leaves_nothing(car_like: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(pipeline.LayerQuantizer, "begin", stop)
    refused(run("export", car_like, "--out", tmp_path / "new" / "out"), "interrupted", code=130)
    assert not list(tmp_path.iterdir())


def test_a_disk_that_fills_up_while_exporting_leaves_nothing(
    car_like: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device", "backbone.safetensors")

    monkeypatch.setattr(pipeline, "write_graph", full)
    refused(run("export", car_like, "--out", tmp_path / "new" / "out"), "backbone.safetensors", "No space left")
    assert not list(tmp_path.iterdir())


SLOW = """
import time
from fastcar.toolkit.backends import protocol
from fastcar.toolkit.cli.app import main
step = protocol.SteppingBackend._step
def slow(self, tokens):
    time.sleep(0.02)
    if self.state.position == self.layout.frame_start(1) + 1 and self.state.limit > 20:
        print("in frame 1", flush=True)
    return step(self, tokens)
protocol.SteppingBackend._step = slow
main()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "TERM"])
def test_a_signal_while_generating_keeps_the_finished_frames(bundle_w8a8: Path, tmp_path: Path, number: int):
    # A shell's background job ignores Ctrl-C and hands that on to its children: this test run may be one.
    listen = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    arguments = ["generate", str(bundle_w8a8), "--prompt", "slow", "--out", str(tmp_path)]
    command = [sys.executable, "-c", listen + SLOW, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "in frame 1\n"
        time.sleep(0.2)
        process.send_signal(number)
        stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    assert "Traceback" not in stderr and "finished frames" in stderr.splitlines()[-1]
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["interrupted"] and 1 <= result["summary"]["frames"] < LAYOUT.frames
    assert str(tmp_path / "video.mp4") in stdout.splitlines()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_a_closed_pipe_while_printing_is_quiet(bundle_w8a8: Path):
    command = shlex.join([sys.executable, "-m", "fastcar", "inspect", str(bundle_w8a8), "--json"]) + " | head -n 1"
    result = subprocess.run(command, shell=True, capture_output=True, text=True, check=False, cwd="/")
    assert result.stdout == "{\n" and "Traceback" not in result.stderr and "internal" not in result.stderr


def test_the_bundle_is_as_it_was(bundle_w8a8: Path):
    """Last: no refusal above has touched it."""
    Bundle.open(bundle_w8a8).verify()


def test_while_names_are_no_text_a_clip_and_its_report_are_written(bundle_w8a8: Path, tmp_path: Path) -> None:
    """File names are bytes; a terminal's encoding, and a page's, cannot hold all of them."""
    out = os.fsencode(tmp_path / "clip") + b"\xff"
    command = [sys.executable, "-m", "fastcar", "generate", bundle_w8a8, "--prompt", "slow", "--frames", "1"]
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8:strict"}
    done = subprocess.run([*command, "--compare", "--out", out], env=environment, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert b"clip\\udcff/report.html" in done.stdout and b"report.html" in os.listdir(out)
