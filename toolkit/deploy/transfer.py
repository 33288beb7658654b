"""Sending a release so that nothing is sent twice, and comparing on the board what has arrived."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Sequence

from ..errors import UsageError
from .board import Room
from .child import Reply, run_child
from .errors import DeployError
from .release import Release
from .remote import AGAIN, Remote, script

__all__ = ["Progress", "check_tools", "damaged", "place", "reuse", "send", "send_again"]

Progress = Callable[[int, int], None]
"""(done, total), in bytes or files."""

OLDEST_RSYNC = (3, 1)
LOST = {10, 12, 30, 35, 255}  # rsync's codes for a connection that failed or ended
SENT = re.compile(r"^Literal data: (\d+)", re.MULTILINE)
DONE = re.compile(r"\s*(\d+)\s+\d+%")


def check_tools() -> None:
    """UsageError if ssh or a fitting rsync is missing on this side."""
    for tool, package in (("ssh", "openssh-client"), ("rsync", "rsync")):
        if shutil.which(tool) is None:
            raise UsageError(tool, "not found on this computer", "it on the path", f"apt-get install {package}")
    first = run_child(["rsync", "--version"]).output.partition("\n")[0]
    version = re.search(r"version (\d+)\.(\d+)", first)
    if version is None or tuple(map(int, version.groups())) < OLDEST_RSYNC:
        raise UsageError("rsync", first or "no version", "rsync 3.1 or newer", "Install a newer one.")


def reuse(remote: Remote, folder: str, release: Release, room: Room) -> None:
    """Link into the staging folder what a release on the board has already."""
    if room.base is None:
        return
    pairs = [
        f"{room.base_files[file.sha256]}\n{file.name}\n" for file in release.files if file.sha256 in room.base_files
    ]
    reply = remote.run(script("stage.sh"), folder, room.base, release.id, stdin="".join(pairs))
    _expect_done(remote, folder, reply)


def send(
    remote: Remote, folder: str, release: Release, expected: int, progress: Progress, rate: int | None = None
) -> int:
    """Bring the staging folder up to date; the bytes of contents that were sent. ``rate`` limits, in KiB/s.

    Whatever part of a file is there already is kept, checked by rsync, and continued. DeployError if the connection
    ends or the disk fills up.
    """

    def show(line: str) -> None:
        if found := DONE.match(line):
            progress(min(int(found[1]), expected), expected)

    reply = run_child(_command(remote, folder, release, rate), show)
    if reply.code == 0:
        return int(SENT.search(reply.output)[1])
    place = f"{remote.target}:{folder}"
    if "No space left" in reply.errors or "quota exceeded" in reply.errors:
        raise DeployError(place, "its disk is full", f"{expected} bytes of room", f"Free some space. {AGAIN}")
    if reply.code in LOST:
        raise remote.failure(reply)
    raise DeployError(place, f"rsync ended with {reply.code}: {reply.last_line}", "a complete transfer", AGAIN)


def _command(remote: Remote, folder: str, release: Release, rate: int | None) -> list[str]:
    # rsync's own way to quote a word: single quotes, doubled inside.
    shell = " ".join("'" + word.replace("'", "''") + "'" for word in remote.ssh())
    options = [
        "-r", "-L", "-p", "--chmod=u=rwX,go=rX", "--delete",  # contents and whether they run; no times, no owners
        "-s",  # names as they are, not for the shell of the board to read
        "--partial", "--append-verify", "--timeout=60",
        "--info=progress2,stats2", "--no-human-readable",
    ]  # fmt: skip
    if rate is not None:
        options.append(f"--bwlimit={rate}")
    return [
        "rsync", *options, "-e", shell, "--",
        f"{release.folder}/", f"{remote.target.rsync_login}:{folder}/incoming/{release.id}/",
    ]  # fmt: skip


def damaged(
    remote: Remote, folder: str, kind: str, release: Release, progress: Progress, names: Sequence[str] = ()
) -> list[str]:
    """Names of the files in ``kind`` ("incoming" or "releases") that are missing there or differ, by sha256.

    ``names``: only these; of all, if none is given.
    """
    checked = release.checklist.splitlines(keepends=True)
    if names:
        checked = [line for line in checked if line.rstrip("\n").partition("  ")[2] in names]
    good: set[str] = set()

    def count(line: str) -> None:
        if line.endswith(": OK\n"):
            good.add(line.removesuffix(": OK\n"))
            progress(len(good), len(checked))

    remote.run(script("verify.sh"), f"{folder}/{kind}/{release.id}", stdin="".join(checked), on_line=count)
    return [name for line in checked if (name := line.rstrip("\n").partition("  ")[2]) not in good]


def send_again(
    remote: Remote, folder: str, release: Release, names: Sequence[str], progress: Progress, rate: int | None = None
) -> int:
    """Send these files anew, once; the bytes sent. DeployError if one of them arrives damaged again."""
    reply = remote.run(script("remove.sh"), folder, release.id, stdin="".join(f"{name}\n" for name in names))
    _expect_done(remote, folder, reply)
    expected = sum(release.file(name).size for name in names)
    sent = send(remote, folder, release, expected, progress, rate)
    if still := damaged(remote, folder, "incoming", release, lambda done, total: None):
        raise DeployError(
            f"{remote.target}:{folder}",
            f"{still[0]} arrived damaged twice",
            f"sha256 {release.file(still[0]).sha256[:12]}...",
            "Check the board's disk, and that the file does not change while it is sent.",
        )
    return sent


def place(remote: Remote, folder: str, release: Release, names: Sequence[str] = ()) -> None:
    """Move what was staged and verified to the releases; only ``names``, if the release is there already."""
    reply = remote.run(script("place.sh"), folder, release.id, stdin="".join(f"{name}\n" for name in names))
    _expect_done(remote, folder, reply)


def _expect_done(remote: Remote, folder: str, reply: Reply) -> None:
    if reply.code != 0:
        place = f"{remote.target}:{folder}"
        raise DeployError(place, reply.last_line, "a folder that can be written", f"Check the board's disk. {AGAIN}")
