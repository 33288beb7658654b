"""The whole deploy, stage by stage: checks, release, transfer, verification, installation, switch."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import Any

from ..bundle.bundle import Bundle
from ..errors import UsageError
from .board import Board, Room, check_board, check_room, measure_room
from .install import activate, install
from .lock import DeployLock
from .overlay import check_overlay
from .release import Release, check_wheelhouse, stage
from .remote import Remote
from .transfer import check_tools, damaged, place, reuse, send, send_again
from .wheel import check_wheel, checkout, wheel_for

__all__ = ["Sources", "deploy"]

Advance = Callable[[str, int, int], None]
"""(stage, done, total): called as work proceeds."""


@dataclass(frozen=True)
class Sources:
    """What a release is made of. ``bit``: the overlay's bitstream, if any; ``wheel`` None: built from the checkout."""

    bundle: Bundle
    bit: Path | None = None
    wheel: Path | None = None
    wheelhouse: Path | None = None

    def check(self) -> None:
        """UsageError or OverlayError for what cannot be sent, before anything is built or anyone is asked."""
        if self.bit is not None:
            check_overlay(self.bundle, self.bit)
        if self.wheel is not None:
            check_wheel(self.wheel)
        elif checkout() is None:
            found, expected = "none, and fastcar does not run from a checkout", "a wheel of fastcar-edge"
            raise UsageError("--wheel", found, expected, "Give --wheel FILE, or run fastcar from a checkout.")
        if self.wheelhouse is not None:
            check_wheelhouse(self.wheelhouse)


def deploy(
    sources: Sources, remote: Remote, advance: Advance, installing: bool = True, rate: int | None = None
) -> dict[str, Any]:
    """Bring a release to the board and into use; its record. ``rate``: KiB/s at most.

    What was in use stays so until the new release is complete, verified and installed. Run again after any
    interruption it continues. FastCarError says what is in the way.
    """
    check_tools()
    sources.check()
    advance("asking the board", 0, 1)
    board = check_board(remote)
    advance("asking the board", 1, 1)
    with tempfile.TemporaryDirectory(prefix="fastcar-deploy-") as work:
        advance("making the release", 0, 1)
        wheel = wheel_for(sources.wheel, Path(work))
        release = stage(Path(work) / "release", sources.bundle, sources.bit, wheel, sources.wheelhouse)
        advance("making the release", 1, 1)
        with DeployLock(remote, board.folder) as lock:
            room = measure_room(lock.remote, board.folder, release)
            check_room(remote.target, board, room, release)
            sent, resent = _bring(lock, board, room, release, advance, rate)
            record = _record(remote, board, release, sent, resent)
            if installing:
                record |= _install(lock, board, release, advance)
    return record


def _bring(
    lock: DeployLock, board: Board, room: Room, release: Release, advance: Advance, rate: int | None
) -> tuple[int, list[str]]:
    """Until the release lies complete and verified in its place: bytes sent, names of files sent again."""
    remote, folder = lock.remote, board.folder
    comparing = lambda done, total: advance("comparing hashes", done, total)
    sending = lambda done, total: advance("sending", done, total)
    broken: list[str] = []
    if room.present:
        broken = damaged(remote, folder, "releases", release, comparing)
        if not broken:
            return 0, []
        whole = {file.sha256: file.name for file in release.files if file.name not in broken}
        room = replace(room, present=False, base=release.id, base_files=whole)
    expected = room.missing(release)
    sending(0, expected)
    reuse(remote, folder, release, room)
    sent = send(remote, folder, release, expected, sending, rate)
    sending(expected, expected)
    lock.check()
    resent = damaged(remote, folder, "incoming", release, comparing)
    if resent:
        sent += send_again(remote, folder, release, resent, lambda done, total: advance("again", done, total), rate)
    lock.check()
    place(remote, folder, release, broken)
    return sent, sorted({*resent, *broken})


def _install(lock: DeployLock, board: Board, release: Release, advance: Advance) -> dict[str, Any]:
    advance("installing", 0, 1)
    version = install(lock.remote, board.folder, release)
    advance("installing", 1, 1)
    lock.check()
    previous, removed = activate(lock.remote, board.folder, release)
    return {"installed": version, "current": True, "previous": previous, "removed": removed}


def _record(remote: Remote, board: Board, release: Release, sent: int, resent: list[str]) -> dict[str, Any]:
    return {
        "release": release.id,
        "target": str(remote.target),
        "folder": board.folder,
        "python": f"{board.python} ({board.version}, {board.machine})",
        "files": len(release.files),
        "bytes": release.size,
        "sent_bytes": sent,
        "present_bytes": max(0, release.size - sent),
        "sent_again": resent,
        "installed": None,
        "current": False,
        "previous": None,
        "removed": [],
        "install_command": " && ".join(
            quote(f"{board.folder}/releases/{release.id}/{name}") for name in ("install.sh", "activate.sh")
        ),
        "command": quote(f"{board.folder}/current/generate.sh"),
    }
