"""What keeps a deploy from starting: one line that says what to do, nothing on the board."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
from pathlib import Path

import pytest
from cli_runs import Outcome, run

from fastcar.toolkit.cli import deploy as deploy_cli
from fastcar.toolkit.deploy import transfer
from fastcar.toolkit.deploy import wheel as wheels

USER = getpass.getuser()


def refused(outcome: Outcome, *words: str) -> None:
    assert outcome.code == 2, outcome.stderr
    for word in words:
        assert word in outcome.error, f"{word!r} in {outcome.error!r}"
    assert not outcome.stdout


@pytest.fixture
def send(board, bundle_w8a8: Path, wheel: Path):
    """A deploy of these; nothing may be left on the board but, where the lock was taken, empty folders."""

    def deploy(*more: object, folder: str = "") -> Outcome:
        outcome = board.deploy(bundle_w8a8, "--wheel", wheel, *more, folder=folder)
        assert not [file for file in board.root.rglob("*") if file.is_file() and file.name != ".deploy.lock"]
        return outcome

    return deploy


def test_port_where_nothing_listens(send) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        refused(send("--port", port), f"nothing listens on port {port}", "--port N")


def test_key_that_is_refused(board, send) -> None:
    refused(
        send("--identity", board.folder / "stranger"), "refused every key", f"ssh-copy-id -p {board.port}", "--identity"
    )


def test_unknown_host_key(bundle_w8a8: Path, wheel: Path, board, tmp_path: Path) -> None:
    known = f"UserKnownHostsFile={tmp_path / 'empty'}"
    words = board.options
    words[words.index("--ssh-option") + 1] = known
    outcome = run("deploy", bundle_w8a8, f"{USER}@127.0.0.1", "--wheel", wheel, *words)
    refused(outcome, "its host key is not known", "compare the fingerprint: ssh -p")


def test_changed_host_key(bundle_w8a8: Path, wheel: Path, board, tmp_path: Path) -> None:
    kind, key, *_ = (board.folder / "stranger.pub").read_text().split()
    (tmp_path / "known").write_text(f"[127.0.0.1]:{board.port} {kind} {key}\n")
    words = board.options
    words[words.index("--ssh-option") + 1] = f"UserKnownHostsFile={tmp_path / 'known'}"
    outcome = run("deploy", bundle_w8a8, f"{USER}@127.0.0.1", "--wheel", wheel, *words)
    refused(outcome, "another host key", f"ssh-keygen -R '[127.0.0.1]:{board.port}'")


def test_host_without_address(bundle_w8a8: Path, wheel: Path) -> None:
    refused(run("deploy", bundle_w8a8, "me@no-such-board.invalid", "--wheel", wheel), "no address is known")


def test_host_that_does_not_answer(bundle_w8a8: Path, wheel: Path) -> None:
    """A server that accepts and says nothing."""
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        port = mute.getsockname()[1]
        more = ("--port", port, "--ssh-option", "ConnectTimeout=1")
        refused(run("deploy", bundle_w8a8, "me@127.0.0.1", "--wheel", wheel, *more), "no answer", "Check power")


def test_disk_without_room(board, send) -> None:
    board.hide("df", 'printf "Filesystem 1024-blocks Used Available Capacity Mounted on\\n/dev/x 9 9 2048 99%% /\\n"')
    refused(send(), "2.0 MiB free on its disk", "MiB for the release and its environment", "Free some space")


@pytest.mark.parametrize(
    ("tool", "words"),
    [
        ("rsync", ("no rsync there", "apt-get install rsync")),
        ("flock", ("no flock there", "apt-get install util-linux")),
    ],
)
def test_missing_tool_on_the_board(board, send, tool: str, words: tuple[str, ...]) -> None:
    """A path with everything but the tool."""
    names = {"sh", "dirname", "uname", "sha256sum", "timeout", "rsync", "flock"} - {tool}
    for name in names:
        (board.bin / name).symlink_to(shutil.which(name))
    board.hide("sh", f'PATH="{board.bin}" exec {shutil.which("sh")} "$@"')
    refused(send(), *words)


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("echo 3.8", ("is Python 3.8", "3.10 or newer")),
        ("exit 1", ("does not run there", "apt-get install python3")),
        ("case $2 in *ensurepip* | *pip*) exit 1;; esac; echo 3.12", ("lacks venv", "python3.12-venv")),
    ],
)
def test_python_that_will_not_do(board, send, version: str, words: tuple[str, ...]) -> None:
    file = board.folder / "python"
    file.write_text(f"#!/bin/sh\n{version}\n")
    refused(send(), *words)


@pytest.mark.skipif(os.getuid() == 0, reason="root may write anywhere")
def test_folder_of_another_user(send) -> None:
    refused(send(folder=":/usr/fastcar"), "/usr cannot be written", "user@host:folder")


def test_file_in_the_way(board, send) -> None:
    (board.home / "taken").write_text("")
    refused(send(folder=":taken/fastcar"), "taken cannot be written")


def test_folder_named_current(board, send) -> None:
    (board.root / "current").mkdir(parents=True)
    refused(send(), "current is no link", "Move it away")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--overlay", "none.bit"), ("none.bit: no such file", "the bitstream")),
        (("--overlay", "{bit}.hwh"), ("not a bitstream",)),
        (("--wheel", "none.whl"), ("none.whl: no such file", "a wheel of fastcar-edge")),
        (("--wheel", "{bit}.bit"), ("fastcar_edge-VERSION",)),
        (("--wheelhouse", "{folder}"), ("no wheel (*.whl) in it", "pip download")),
        (("--identity", "none"), ("--identity: none is no file",)),
        (("--ssh-option", "Compression"), ("--ssh-option: 'Compression'", "KEY=VALUE")),
        (("--ssh-option", "Nonsense=yes"), ("Bad configuration option: nonsense", "--ssh-option")),
    ],
)
def test_options_that_cannot_be_used(send, overlay: Path, more: tuple[str, str], words: tuple[str, ...]) -> None:
    values = {"bit": str(overlay.with_suffix("")), "folder": str(overlay.parent)}
    refused(send(*(word.format(**values) for word in more)), *words)


@pytest.mark.parametrize("suffix", [".hwh", ".bit"])
def test_overlay_that_is_not_whole(send, overlay: Path, suffix: str) -> None:
    overlay.with_suffix(suffix).write_bytes(b"")
    refused(send("--overlay", overlay), f"fastcar{suffix}: an empty file")
    overlay.with_suffix(suffix).unlink()
    refused(send("--overlay", overlay), f"fastcar{suffix}: no such file")


def test_damaged_bundle(board, bundle_w8a8: Path, wheel: Path, tmp_path: Path) -> None:
    copy = tmp_path / "bundle"
    shutil.copytree(bundle_w8a8, copy)
    with (copy / "decoder.onnx").open("ab") as file:
        file.write(b"x")
    refused(board.deploy(copy, "--wheel", wheel), "decoder.onnx", "Copy the bundle again")
    assert not board.root.exists()


def test_no_wheel_and_no_checkout(board, bundle_w8a8: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(wheels, "PACKAGE", tmp_path)
    refused(board.deploy(bundle_w8a8), "--wheel: none, and fastcar does not run from a checkout", "--wheel FILE")


@pytest.mark.parametrize("tool", ["ssh", "rsync"])
def test_missing_tool_here(send, monkeypatch: pytest.MonkeyPatch, tool: str) -> None:
    found = shutil.which
    monkeypatch.setattr(transfer.shutil, "which", lambda name: None if name == tool else found(name))
    refused(send(), f"{tool}: not found on this computer", "apt-get install")


def test_target_is_read_before_anything_else() -> None:
    assert deploy_cli.command.params[1].name == "target"
    refused(run("deploy", "no-bundle", "me@::1"), "target: 'me@::1'", "in brackets")


def test_a_lock_that_is_a_link_is_not_written_through(board, bundle_w8a8: Path, wheel: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("as it was")
    board.root.mkdir()
    (board.root / ".deploy.lock").symlink_to(precious)
    refused(board.deploy(bundle_w8a8, "--wheel", wheel, "--no-install"), ".deploy.lock is a link", "remove it")
    assert precious.read_text() == "as it was" and os.listdir(board.root) == [".deploy.lock"]


def test_nothing_is_sent_through_a_link(board, bundle_w8a8: Path, wheel: Path, tmp_path: Path) -> None:
    """What does not belong to a release is deleted where it arrives."""
    record = board.deployed(bundle_w8a8, "--wheel", wheel, "--no-install")
    other, release = tmp_path / "other", board.root / "releases" / record["release"]
    other.mkdir()
    (other / "precious").write_text("as it was")
    release.rename(tmp_path / "moved")
    for make in (lambda: release.symlink_to(tmp_path / "moved"), lambda: release.write_text("")):
        make()
        found = board.deploy(bundle_w8a8, "--wheel", wheel, "--no-install")
        refused(found, f"releases/{record['release']} is no folder", "Move it away")
        release.unlink()
    (board.root / "incoming" / record["release"]).symlink_to(other)
    board.deployed(bundle_w8a8, "--wheel", wheel, "--no-install")
    assert os.listdir(other) == ["precious"] and release.is_dir() and not release.is_symlink()


def test_an_installation_writes_through_no_link(board, bundle_w8a8: Path, wheel: Path, tmp_path: Path) -> None:
    record = board.deployed(bundle_w8a8, "--wheel", wheel, "--no-install")
    for name in (".install.lock", "install.log"):
        (tmp_path / name).write_text("as it was")
        (board.root / "releases" / record["release"] / name).symlink_to(tmp_path / name)
    assert board.deployed(bundle_w8a8, "--wheel", wheel)["current"]
    assert {(tmp_path / name).read_text() for name in (".install.lock", "install.log")} == {"as it was"}
