"""Writing a bundle: complete or absent, and gone on with where an earlier attempt was interrupted."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..errors import OutputError
from .bundle import MANIFEST, Bundle
from .manifest import Manifest, file_entry

__all__ = ["unfinished_folder", "write_bundle"]


def write_bundle(
    target: Path,
    fill: Callable[[Path], Manifest],
    overwrite: bool = False,
    key: str | None = None,
    keep: Callable[[Path], bool] = lambda folder: False,
) -> Bundle:
    """``fill`` writes the files into a folder beside the target and returns the manifest without hashes; then the
    folder is renamed.

    OutputError, before ``fill`` is called, if the target exists (unless it is a bundle, holds nothing else, and
    ``overwrite``) or cannot be written. With a ``key``, what a killed attempt of the same key has written is there
    when ``fill`` is called; so is what an interrupted one has, if ``keep`` of its folder. Whatever else happens,
    nothing half-written is left behind.
    """
    made: list[Path] = []
    try:
        place = _place(target)
        _check_target(target, place, overwrite)
        made = [folder for folder in place.parents if not folder.exists()]
        place.parent.mkdir(parents=True, exist_ok=True)
        partial = _partial(place, key)
    except OSError as error:
        _remove_empty(made)
        reason = (error.strerror or str(error)).lower()
        raise OutputError(target, reason, "a folder that can be written", "Choose another --out.") from error
    with _locked(target, partial):
        try:
            manifest = fill(partial)
            names = sorted(str(file.relative_to(partial)) for file in partial.rglob("*") if file.is_file())
            entries = {name: file_entry(partial / name) for name in names}
            manifest.model_copy(update={"files": entries}).write(partial / MANIFEST)
            partial.chmod(0o755)
            for file in partial.rglob("*"):  # writers differ in the mode they give; a bundle is to be shared
                file.chmod(0o755 if file.is_dir() else 0o644)
            _put_in_place(partial, place)
        except BaseException as error:
            if not (isinstance(error, KeyboardInterrupt) and keep(partial)):
                shutil.rmtree(partial, ignore_errors=True)
                _remove_empty(made)
            raise
    return Bundle.open(target, verify=False)


def unfinished_folder(target: Path, key: str) -> Path:
    """Where ``write_bundle`` works on a bundle of this key, and leaves what is kept of an interrupted attempt."""
    place = _place(target)
    return place.with_name(f"{_stem(place)}.{key}.partial")


def _place(target: Path) -> Path:
    return target.resolve() if target.is_symlink() else target


def _stem(place: Path) -> str:
    return f".{place.name[:64]}"


def _partial(place: Path, key: str | None) -> Path:
    """A new folder, or that of an earlier attempt of this key; attempts of other keys are given up."""
    stem = _stem(place)
    if key is None:
        return Path(tempfile.mkdtemp(prefix=f"{stem}.", dir=place.parent))
    own = unfinished_folder(place, key)
    for other in place.parent.iterdir():
        if other.name.startswith(f"{stem}.") and other.name.endswith(".partial") and other != own:
            with suppress(OSError), _locked(other, other):
                shutil.rmtree(other)
    own.mkdir(exist_ok=True)
    return own


@contextmanager
def _locked(target: Path, folder: Path) -> Iterator[None]:
    """OutputError while another process works in the folder; a killed one holds no lock."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        found = "is being made by another export right now"
        raise OutputError(target, found, "one at a time", "Wait for it, or choose another --out.") from None
    try:
        yield
    finally:
        os.close(handle)


def _check_target(target: Path, place: Path, overwrite: bool) -> None:
    if not place.exists():
        return
    if not overwrite or not (place / MANIFEST).is_file():
        raise OutputError(
            target, "exists already", "a new folder", "Choose another --out, or --overwrite for a bundle."
        )
    try:
        known = {MANIFEST, *json.loads((place / MANIFEST).read_text("utf-8"))["files"]}
    except (ValueError, KeyError, TypeError) as error:
        raise OutputError(
            target, f"its {MANIFEST} is no bundle's", "a bundle to replace", "Choose another --out."
        ) from error
    foreign = sorted(str(file.relative_to(place)) for file in place.rglob("*") if not file.is_dir())
    foreign = [name for name in foreign if name not in known]
    if foreign:
        raise OutputError(target, f"holds {foreign[0]!r}", "nothing but the bundle to replace", "Move it away.")


def _put_in_place(partial: Path, place: Path) -> None:
    """The earlier bundle is there until the new one is."""
    if not place.exists():
        partial.rename(place)
        return
    old = place.with_name(f"{partial.name}.old")
    place.rename(old)
    try:
        partial.rename(place)
    except BaseException:
        old.rename(place)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _remove_empty(folders: list[Path]) -> None:
    """Folders made on the way to a target that came to nothing, innermost first."""
    for folder in folders:
        with suppress(OSError):
            folder.rmdir()
