"""What is sent: a folder of links to the files, the list of their hashes, and the id that follows from it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from ..bundle.bundle import MANIFEST, Bundle
from ..bundle.manifest import file_entry
from ..errors import UsageError
from .overlay import overlay_files

__all__ = ["SCRIPTS", "SUMS", "File", "Release", "check_wheelhouse", "parse_sums", "stage"]

SUMS = "SHA256SUMS"
SCRIPTS = ("install.sh", "activate.sh", "generate.sh", "python.sh")
ID_DIGITS = 12


@dataclass(frozen=True)
class File:
    """One file of a release. ``name``: its path there; ``source``: where its content is; ``size`` in bytes."""

    name: str
    source: Path
    size: int
    sha256: str


@dataclass(frozen=True)
class Release:
    """A release in ``folder``. ``sums`` lists every file but itself; ``id`` is a hash of that list."""

    folder: Path
    id: str
    files: tuple[File, ...]
    sums: str

    @property
    def checklist(self) -> str:
        """``sums``, and the file that holds it: what ``sha256sum -c`` is asked."""
        own = self.file(SUMS)
        return f"{self.sums}{own.sha256}  {own.name}\n"

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def wheels_size(self) -> int:
        """Bytes of what will be unpacked into the environment."""
        return sum(file.size for file in self.files if file.name.startswith(("wheel/", "wheelhouse/")))

    @property
    def has_wheelhouse(self) -> bool:
        return any(file.name.startswith("wheelhouse/") for file in self.files)

    def file(self, name: str) -> File:
        return next(file for file in self.files if file.name == name)


def stage(folder: Path, bundle: Bundle, bit: Path | None, wheel: Path, wheelhouse: Path | None = None) -> Release:
    """Lay out the release in the new ``folder``. The same contents give the same id, wherever and whenever.

    UsageError on a file name that the board's tools could misread.
    """
    folder.mkdir(parents=True)
    known = {name: entry.sha256 for name, entry in bundle.manifest.files.items()}  # compared when it was opened
    parts = [(f"bundle/{name}", bundle.path / name, known.get(name)) for name in (MANIFEST, *known)]
    parts += [(f"overlay/{file.name}", file, None) for file in (overlay_files(bit) if bit else ())]
    parts.append((f"wheel/{wheel.name}", wheel, None))
    parts += [(f"wheelhouse/{file.name}", file, None) for file in wheelhouse_files(wheelhouse)]
    files = [_linked(folder, *part) for part in parts]
    for name in SCRIPTS:
        text = (resources.files(__package__) / "scripts" / name).read_text("utf-8")
        files.append(_written(folder, name, text, 0o755))
    about = {"bundle": bundle.manifest.name, "overlay": bit.name if bit else None, "wheel": wheel.name}
    files.append(_written(folder, "release.json", json.dumps(about, indent=1) + "\n"))
    sums = "".join(f"{file.sha256}  {file.name}\n" for file in sorted(files, key=lambda file: file.name))
    files.append(_written(folder, SUMS, sums))
    return Release(folder, hashlib.sha256(sums.encode()).hexdigest()[:ID_DIGITS], tuple(files), sums)


def wheelhouse_files(folder: Path | None) -> list[Path]:
    return sorted(folder.glob("*.whl")) if folder else []


def check_wheelhouse(folder: Path) -> None:
    """UsageError if there is no wheel in it."""
    if not wheelhouse_files(folder):
        fix = "Fill it with: pip download --only-binary :all: --platform manylinux_2_28_aarch64 -d DIR PACKAGES"
        raise UsageError(folder, "no wheel (*.whl) in it", "a folder of wheels for the board", fix)


def parse_sums(lines: Iterable[str]) -> dict[str, str]:
    """sha256 -> name, of the lines of a list of hashes."""
    pairs = (line.partition("  ") for line in lines)
    return {digest: name for digest, _, name in pairs if name}


def _linked(folder: Path, name: str, source: Path, sha256: str | None) -> File:
    if not name.isprintable() or "\\" in name:
        raise UsageError(source, "a name with special characters", "printable names without \\", "Rename the file.")
    entry = file_entry(source)
    place = folder / name
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(source.resolve())
    return File(name, source, entry.bytes, sha256 or entry.sha256)


def _written(folder: Path, name: str, text: str, mode: int = 0o644) -> File:
    place = folder / name
    place.write_text(text, "utf-8")
    place.chmod(mode)
    entry = file_entry(place)
    return File(name, place, entry.bytes, entry.sha256)
