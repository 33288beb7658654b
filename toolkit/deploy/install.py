"""Installing a release on the board and switching to it."""

from __future__ import annotations

from collections.abc import Callable
from shlex import quote

from .errors import DeployError
from .release import Release
from .remote import Remote, facts_of

__all__ = ["activate", "install"]

PROBLEM = "fastcar: "
WHEELHOUSE = (
    "Connect the board to the network, or send the packages along: "
    "pip download --only-binary :all: ... -d wheels, then --wheelhouse wheels."
)
FAULTS = {
    3: ("a Python that can make environments", "On the board: sudo apt-get install python3-venv."),
    4: ("packages the board can reach", WHEELHOUSE),
    5: ("packages that install", "See install.log in the release's folder on the board."),
    6: ("fastcar --version to run", "See install.log in the release's folder on the board."),
}


def install(remote: Remote, folder: str, release: Release, on_line: Callable[[str], None] | None = None) -> str:
    """Run the release's own install.sh; the version that answers. DeployError: ``current`` is as it was."""
    place = f"{folder}/releases/{release.id}"
    reply = remote.run('exec sh "$1/install.sh"', place, on_line=on_line)
    if reply.code == 0:
        return reply.last_line
    problem = reply.last_line.removeprefix(PROBLEM)
    expected, fix = FAULTS.get(reply.code, (FAULTS[6][0], FAULTS[6][1]))
    if reply.code == 4 and release.has_wheelhouse:
        fix = "The folder of --wheelhouse lacks it, or has it for another machine or Python: add it."
    raise DeployError(f"{remote.target}:{place}/install.sh", problem, expected, fix)


def activate(remote: Remote, folder: str, release: Release) -> tuple[str | None, list[str]]:
    """Switch ``current`` to the release: (id of the release before it, what was removed). DeployError if it cannot."""
    reply = remote.run('exec sh "$1/activate.sh"', f"{folder}/releases/{release.id}")
    if reply.code != 0:
        problem = reply.last_line.removeprefix(PROBLEM)
        fix = f"Then on the board: {quote(f'{folder}/releases/{release.id}/activate.sh')}."
        raise DeployError(f"{remote.target}:{folder}", problem, "a link to switch", fix)
    facts = facts_of(reply.output)
    return facts.get("previous", [""])[0] or None, facts.get("removed", [])
