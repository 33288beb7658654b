"""Deploys that are cut off, damaged or in each other's way: what was in use stays so, and the next one continues."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

ENOUGH = 1_500_000  # bytes, of the overlay's 6 MB


def wait_until(condition: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


def running_in_group(group: int) -> list[str]:
    """The processes of a group, but those that only wait for their exit code to be asked for."""
    found = []
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            name, _, rest = file.read_text().rpartition(")")
            state, _, own = rest.split()[:3]
            found += [name] if int(own) == group and state != "Z" else []
    return found


@pytest.fixture
def in_use(board, bundle_w8a8: Path, wheel: Path) -> str:
    """The id of a release that works."""
    return board.deployed(bundle_w8a8, "--wheel", wheel)["release"]


def works(board) -> bool:
    command = [board.root / "current/env/bin/python", "-I", "-m", "fastcar", "--version"]
    return subprocess.run(command, capture_output=True).stdout == b"fastcar, version 9.9\n"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_killed_while_sending(board, bundle_w8a8: Path, wheel: Path, overlay: Path, in_use: str, number: int) -> None:
    """The whole group by KILL, or fastcar alone by a signal it ends its children on."""
    process = board.start(bundle_w8a8, "--wheel", wheel, "--overlay", overlay, "--bwlimit", 1500)
    wait_until(lambda: (board.root / "incoming").is_dir() and board.staged_bytes() > ENOUGH)
    os.killpg(process.pid, number) if number == signal.SIGKILL else process.send_signal(number)
    _, errors = process.communicate(timeout=10)
    assert process.returncode == (-number if number == signal.SIGKILL else 130), errors
    assert number == signal.SIGKILL or errors.splitlines()[-1] == "fastcar: interrupted"
    wait_until(lambda: not running_in_group(process.pid))  # no ssh and no rsync is left
    assert board.current == in_use
    assert works(board)
    there = board.staged_bytes()
    record = board.deployed(bundle_w8a8, "--wheel", wheel, "--overlay", overlay)
    assert 0 < record["sent_bytes"] <= record["bytes"] - ENOUGH
    assert record["sent_bytes"] >= overlay.stat().st_size - there
    assert (board.root / "current/overlay/fastcar.bit").read_bytes() == overlay.read_bytes()
    assert record["sent_again"] == []
    assert record["previous"] == in_use


def test_part_of_a_file_that_is_wrong_is_not_continued(board, bundle_w8a8: Path, wheel: Path, overlay: Path) -> None:
    record = board.deployed(bundle_w8a8, "--wheel", wheel, "--overlay", overlay, "--no-install")
    staged = board.root / "incoming" / record["release"]
    (board.root / "releases" / record["release"]).rename(staged)
    (staged / "overlay/fastcar.bit").write_bytes(b"another" * 1000)
    record = board.deployed(bundle_w8a8, "--wheel", wheel, "--overlay", overlay, "--no-install")
    assert record["sent_bytes"] >= overlay.stat().st_size - 7000
    arrived = board.root / "releases" / record["release"] / "overlay/fastcar.bit"
    assert arrived.read_bytes() == overlay.read_bytes()


DAMAGE = """
count=$(cat "{folder}/count" 2>/dev/null || echo 0)
echo $((count + 1)) > "{folder}/count"
case $PWD in */incoming/*)
    if [ $count -lt {times} ]; then
        time=$(stat -c %Y overlay/fastcar.bit)
        printf X | dd of=overlay/fastcar.bit bs=1 seek=3000000 conv=notrunc 2>/dev/null
        touch -d "@$time" overlay/fastcar.bit
    fi ;;
esac
exec "$real" "$@"
"""


def test_damaged_on_arrival_is_sent_again(board, bundle_w8a8, wheel: Path, overlay: Path, in_use, tmp_path) -> None:
    board.hide("sha256sum", DAMAGE.format(folder=tmp_path, times=1))
    outcome = board.deploy(bundle_w8a8, "--wheel", wheel, "--overlay", overlay)
    assert outcome.code == 0, outcome.stderr
    assert "sent again: overlay/fastcar.bit" in outcome.stderr
    assert board.current != in_use
    assert (board.root / "current/overlay/fastcar.bit").read_bytes() == overlay.read_bytes()


def test_damaged_twice_is_an_error(board, bundle_w8a8, wheel: Path, overlay: Path, in_use: str, tmp_path) -> None:
    board.hide("sha256sum", DAMAGE.format(folder=tmp_path, times=2))
    outcome = board.deploy(bundle_w8a8, "--wheel", wheel, "--overlay", overlay)
    assert outcome.code == 2
    assert "overlay/fastcar.bit arrived damaged twice" in outcome.error
    assert board.current == in_use
    assert [file.name for file in (board.root / "releases").iterdir()] == [in_use]


def test_damage_in_the_release_in_use_does_not_spread(board, bundle_w8a8, wheel: Path, other_wheel, in_use) -> None:
    """Its files are taken over by the next release, and compared like those that are sent."""
    victim = board.root / "current/bundle/decoder.onnx"
    victim.write_bytes(b"x" * victim.stat().st_size)
    record = board.deployed(bundle_w8a8, "--wheel", other_wheel, "--no-install")
    assert record["sent_again"] == ["bundle/decoder.onnx"]
    arrived = board.root / "releases" / record["release"] / "bundle/decoder.onnx"
    assert arrived.read_bytes() == (bundle_w8a8 / "decoder.onnx").read_bytes()


def test_second_deploy_at_once_is_refused(board, bundle_w8a8: Path, wheel: Path, overlay: Path) -> None:
    first = board.start(bundle_w8a8, "--wheel", wheel, "--overlay", overlay, "--bwlimit", 1500, "--no-install")
    try:
        wait_until(lambda: (board.root / "incoming").is_dir() and board.staged_bytes() > ENOUGH)
        outcome = board.deploy(bundle_w8a8, "--wheel", wheel)
        assert outcome.code == 2
        assert f"another deploy is at work (process {first.pid} on " in outcome.error
        assert "frees the folder within a minute" in outcome.error
        assert first.poll() is None
    finally:
        first.send_signal(signal.SIGKILL)  # its ssh and rsync are left to find out by themselves
        first.communicate(timeout=20)
    second = board.deployed(bundle_w8a8, "--wheel", wheel, "--overlay", overlay, "--no-install")
    assert second["sent_bytes"] < overlay.stat().st_size


def test_lock_is_free_when_its_holder_is_silent(tmp_path: Path) -> None:
    """As after a cable was pulled: the connection still stands, but no sign of life arrives."""
    from fastcar.toolkit.deploy.remote import script

    impatient = script("lock.sh").replace("timeout 60", "timeout 1")
    hold = ["sh", "-c", impatient, "sh", str(tmp_path), "first"]
    with subprocess.Popen(hold, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as first:
        assert first.stdout.readline() == b"fastcar:locked=yes\n"
        refused = subprocess.run(hold, stdin=subprocess.DEVNULL, capture_output=True)
        assert refused.stdout == b"fastcar:holder=first\n"
        for _ in range(4):
            time.sleep(0.4)
            first.stdin.write(b".")
            first.stdin.flush()
        assert first.poll() is None, "signs of life keep it"
        assert first.wait(5) == 0
        assert subprocess.run(hold, stdin=subprocess.DEVNULL, capture_output=True).returncode == 0


@pytest.mark.parametrize(
    ("fixture", "words"),
    [
        ("broken_wheel", ("no libstdc++", "expected fastcar --version to run", "install.log")),
        ("greedy_wheel", ("fastcar-test-nowhere", "packages the board can reach", "--wheelhouse wheels")),
    ],
)
def test_failing_installation_leaves_what_is_in_use(request, board, bundle_w8a8, in_use: str, fixture, words) -> None:
    outcome = board.deploy(bundle_w8a8, "--wheel", request.getfixturevalue(fixture))
    assert outcome.code == 2
    for word in words:
        assert word in outcome.error
    assert board.current == in_use
    assert works(board)


def test_installation_that_was_cut_off_starts_anew(board, bundle_w8a8, wheel: Path, other_wheel: Path, in_use) -> None:
    record = board.deployed(bundle_w8a8, "--wheel", other_wheel, "--no-install")
    half = board.root / "releases" / record["release"] / "env"
    (half / "bin").mkdir(parents=True)
    (half / "bin/python").write_text("half")
    record = board.deployed(bundle_w8a8, "--wheel", other_wheel)
    assert (record["sent_bytes"], record["installed"]) == (0, "fastcar, version 9.10")
    assert board.current == record["release"]
