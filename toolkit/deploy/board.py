"""What the board has, asked before anything is sent, and whether it will do."""

from __future__ import annotations

from dataclasses import dataclass

from .errors import DeployError
from .release import Release, parse_sums
from .remote import Remote, facts_of, script
from .target import Target

__all__ = ["Board", "Room", "check_board", "check_room", "measure_room"]

MIB = 1 << 20
OLDEST_PYTHON = (3, 10)
TOOLS = {"rsync": "rsync", "flock": "util-linux", "sha256sum": "coreutils", "timeout": "coreutils"}
ENVIRONMENT_BYTES = 64 * MIB  # an environment with pip in it, and what it compiles
UNPACKED = 3  # an unpacked wheel, with its byte code, to the wheel


@dataclass(frozen=True)
class Board:
    """``folder``: the target's, absolute; ``python`` and its version, from which the environment is made."""

    folder: str
    python: str
    version: str
    machine: str


@dataclass(frozen=True)
class Room:
    """Of the target's folder. ``free`` in bytes; ``present``, ``installed``: this release lies there, and is ready.

    ``staged``: name -> bytes of an earlier attempt; ``base``: a release there whose files (sha256 -> name) can be
    used again, None if there is none.
    """

    free: int
    present: bool
    installed: bool
    staged: dict[str, int]
    base: str | None
    base_files: dict[str, str]

    def missing(self, release: Release) -> int:
        """Bytes that have to be sent, if all that lies there is as it should be."""
        if self.present:
            return 0
        sizes = [(file, self.staged.get(file.name)) for file in release.files]
        left = (max(0, file.size - staged) for file, staged in sizes if staged is not None)
        new = (file.size for file, staged in sizes if staged is None and file.sha256 not in self.base_files)
        return sum(left) + sum(new)


def check_board(remote: Remote) -> Board:
    """DeployError names the first thing that is missing; nothing is changed there."""
    target = remote.target
    reply = remote.run(script("python.sh", "probe.sh"), target.folder)
    facts = facts_of(reply.output)
    if "machine" not in facts:
        fix = f"Does `ssh {target.login} true` work without a word?"
        raise DeployError(target, f"its shell says {reply.last_line!r}", "a POSIX shell", fix)
    first = {name: values[0] for name, values in facts.items()}
    board = Board(first["folder"], first["python"], first["version"], first["machine"])
    if "writable" not in facts:
        found, fix = f"{first['above']} cannot be written", "Choose another folder: user@host:folder."
        raise DeployError(f"{target}:{board.folder}", found, "a folder of this user", fix)
    for tool, package in TOOLS.items():
        if tool not in facts.get("tool", ()):
            raise DeployError(target, f"no {tool} there", tool, f"On the board: sudo apt-get install {package}.")
    _check_python(target, board, "venv" in facts)
    return board


def _check_python(target: Target, board: Board, has_venv: bool) -> None:
    wanted = ".".join(map(str, OLDEST_PYTHON))
    if not board.version:
        fix = "On the board: sudo apt-get install python3 python3-venv."
        raise DeployError(target, f"{board.python} does not run there", f"Python {wanted} or newer", fix)
    if tuple(map(int, board.version.split("."))) < OLDEST_PYTHON:
        fix = "Use an image with a newer one, or name one in FASTCAR_BASE_PYTHON in /etc/environment there."
        raise DeployError(target, f"{board.python} is Python {board.version}", f"{wanted} or newer", fix)
    if not has_venv:
        found, fix = f"{board.python} lacks venv", f"On the board: sudo apt-get install python{board.version}-venv."
        raise DeployError(target, found, "a Python that can make environments", fix)


def measure_room(remote: Remote, folder: str, release: Release) -> Room:
    """Makes the folders for releases. DeployError if that is impossible, or something else lies there."""
    place = f"{remote.target}:{folder}"
    reply = remote.run(script("room.sh"), folder, release.id)
    facts = facts_of(reply.output)
    if reply.code != 0 or "free_kib" not in facts:
        raise DeployError(place, reply.last_line, "a folder that can be written", "Choose another folder.")
    if "obstacle" in facts:
        found, expected = f"{facts['obstacle'][0]} is no link", "the link to the release in use"
        raise DeployError(place, found, expected, "Move it away, or choose another folder.")
    if "foreign" in facts:
        raise DeployError(place, f"{facts['foreign'][0]} is no folder", "one that a deploy has made", "Move it away.")
    staged = (line.partition(" ") for line in facts.get("staged", ()))
    return Room(
        free=int(facts["free_kib"][0]) * 1024,
        present="present" in facts,
        installed="installed" in facts,
        staged={name.removeprefix("./"): int(size) for size, _, name in staged},
        base=facts.get("base", [None])[0],
        base_files=parse_sums(facts.get("sum", ())),
    )


def check_room(target: Target, board: Board, room: Room, release: Release) -> None:
    """DeployError with the numbers if the release and its environment do not fit."""
    needed = room.missing(release)
    if not room.installed:
        needed += ENVIRONMENT_BYTES + UNPACKED * release.wheels_size
    if needed > room.free:
        raise DeployError(
            f"{target}:{board.folder}",
            f"{room.free / MIB:.1f} MiB free on its disk",
            f"{needed / MIB:.1f} MiB for the release and its environment",
            "Free some space, or choose a folder on another disk.",
        )
