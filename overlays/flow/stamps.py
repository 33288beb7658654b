"""``done/PHASE.json``: written when a phase has ended well, and what tells whether its results still hold.

``key`` is a hash of everything the phase took, ``id`` one of the key and of every file it made. A phase whose key is
the recorded one and whose files are as recorded is done.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter

from ...toolkit.bundle.manifest import file_entry
from ...toolkit.output import replacing
from .errors import PhaseError
from .layout import Build
from .phases import UNHASHED, Phase, common_scripts
from .tcl import argument_words

__all__ = ["Stamp", "forget", "key_of", "read_stamp", "valid", "write_stamp"]


@dataclass(frozen=True)
class Stamp:
    """``outputs``: sha256 by path below the build's folder. ``seconds``: how long the phase took."""

    phase: str
    key: str
    id: str
    version: str | None
    outputs: dict[str, str]
    seconds: float
    ended: str


STAMP = TypeAdapter(Stamp)
"""Takes a file for what it says only if it has the fields and no other kind of value in them."""


def key_of(phase: Phase, build: Build, version: str | None, ids: dict[str, str]) -> str:
    """``version``: of the tool; ``ids``: of the phases before. PhaseError if a file that it reads is missing.

    Paths below the build's folder count as such: a build that was moved is still what it was.
    """
    words = argument_words({k: v for k, v in phase.arguments(build).items() if k not in UNHASHED})
    scripts = [phase.script, *common_scripts()] if phase.script else []
    taken = {
        "config": build.engine.config.model_dump(),
        "part": [build.board.name, build.board.device.part, build.board.device.board_part],
        "version": version,
        "arguments": [word.replace(str(build.folder), "") for word in words],
        "files": [(path.name, _content(phase, path)) for path in (*scripts, *phase.reads(build))],
        "needs": {name: ids[name] for name in phase.needs},
    }
    return hashlib.sha256(json.dumps(taken, sort_keys=True).encode()).hexdigest()


def read_stamp(build: Build, phase: str) -> Stamp | None:
    """None where there is none that can be used."""
    try:
        return STAMP.validate_json(build.stamp(phase).read_bytes(), strict=True)
    except (OSError, ValueError):
        return None


def valid(stamp: Stamp | None, phase: Phase, build: Build, key: str) -> bool:
    if stamp is None or stamp.key != key or set(stamp.outputs) != set(phase.makes):
        return False
    try:
        return all(file_entry(build.folder / name).sha256 == digest for name, digest in stamp.outputs.items())
    except OSError:
        return False


def write_stamp(build: Build, phase: Phase, key: str, version: str | None, seconds: float) -> Stamp:
    outputs = {name: file_entry(build.folder / name).sha256 for name in phase.makes}
    digest = hashlib.sha256(json.dumps([key, outputs], sort_keys=True).encode()).hexdigest()
    ended = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    stamp = Stamp(phase.name, key, digest, version, outputs, round(seconds, 1), ended)
    with replacing(build.stamp(phase.name)) as partial:
        partial.write_text(json.dumps(asdict(stamp), indent=1) + "\n", "utf-8")
    return stamp


def forget(build: Build, phases: Iterable[Phase]) -> None:
    """They count as not done."""
    for phase in phases:
        build.stamp(phase.name).unlink(missing_ok=True)


def _content(phase: Phase, path: Path) -> str:
    try:
        return file_entry(path).sha256
    except OSError as error:
        found = f"{path}: {(error.strerror or str(error)).lower()}"
        fix = "Run the phases before it, or install the project again."
        raise PhaseError(phase.name, found, "a file that it reads", fix) from error
