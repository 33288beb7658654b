"""Opening, verifying, writing and archiving bundles."""

from __future__ import annotations

import shutil
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from ..errors import BundleError, OutputError
from ..numerics.weights import IntegerModel
from .manifest import Manifest, file_entry
from .prompts import Prompts
from .tensors import read_model

__all__ = ["BACKBONE", "DECODER", "GOLDEN", "MANIFEST", "TOKENIZER", "WEIGHTS", "Bundle", "write_bundle"]

MANIFEST = "manifest.json"
BACKBONE = "backbone.onnx"
WEIGHTS = "backbone.safetensors"
DECODER = "decoder.onnx"
TOKENIZER = "tokenizer.json"
GOLDEN = "golden/clip.safetensors"
REQUIRED = (BACKBONE, WEIGHTS, DECODER, TOKENIZER, GOLDEN)


@dataclass(frozen=True)
class Bundle:
    """A verified bundle on disk.

    Example::

        bundle = fastcar.Bundle.open("car-w8a8")
        print(bundle.manifest.recipe["name"], bundle.prompts.phrases)
    """

    path: Path
    manifest: Manifest

    @classmethod
    def open(cls, path: str | Path, verify: bool = True) -> Bundle:
        """A bundle folder, or a bundle archive (unpacked into a temporary folder beside no other).

        With ``verify`` every file's size and sha256 is compared with the manifest. BundleError names the first file
        that is missing, truncated or altered.
        """
        path = Path(path)
        if path.is_file():
            path = _unpack(path)
        if not path.is_dir():
            raise BundleError(path, "no such folder", "a bundle", "Make one with: fastcar export car --out DIR")
        manifest = Manifest.read(path / MANIFEST)
        bundle = cls(path, manifest)
        bundle._check_names()
        if verify:
            bundle.verify()
        return bundle

    def verify(self) -> None:
        """Compare every file with the manifest; sizes first, so that truncation is found before hashing gigabytes."""
        for name, entry in self.manifest.files.items():
            file = self.path / name
            if not file.is_file():
                raise BundleError(file, "missing", f"a file of {entry.bytes} bytes", "Copy the bundle again.")
            if file.stat().st_size != entry.bytes:
                raise BundleError(file, f"{file.stat().st_size} bytes", f"{entry.bytes} bytes", "Copy the bundle again.")
        for name, entry in self.manifest.files.items():
            found = file_entry(self.path / name).sha256
            if found != entry.sha256:
                raise BundleError(
                    self.path / name, f"sha256 {found[:12]}...", f"{entry.sha256[:12]}...", "The file was altered: copy it again."
                )

    @cached_property
    def prompts(self) -> Prompts:
        return Prompts.model_validate_json((self.path / TOKENIZER).read_text())

    def model(self) -> tuple[IntegerModel, dict[str, np.ndarray]]:
        """The integer model and every stored tensor, for the reference and for packing."""
        manifest = self.manifest
        return read_model(self.path / WEIGHTS, manifest.config, manifest.frame_layout, manifest.tas_query)

    def archive(self, path: str | Path) -> Path:
        """Write the bundle as one file (an uncompressed zip: weights do not compress, and it can be mapped)."""
        path = Path(path)
        partial = path.with_name(path.name + ".partial")
        with zipfile.ZipFile(partial, "w", zipfile.ZIP_STORED) as archive:
            for name in (MANIFEST, *self.manifest.files):
                archive.write(self.path / name, name)
        partial.replace(path)
        return path

    def _check_names(self) -> None:
        for name in self.manifest.files:
            if Path(name).is_absolute() or ".." in Path(name).parts:
                raise BundleError(self.path / MANIFEST, f"file name {name!r}", "names inside the bundle", "Export again.")
        missing = [name for name in REQUIRED if name not in self.manifest.files]
        if missing:
            raise BundleError(self.path / MANIFEST, f"no entry for {missing[0]}", "all of " + ", ".join(REQUIRED), "Export again.")


def write_bundle(target: Path, fill: Callable[[Path], Manifest], overwrite: bool = False) -> Bundle:
    """``fill`` writes the files into a temporary folder and returns the manifest without hashes; then it is renamed.

    OutputError if the target exists (unless it is a bundle and ``overwrite``); nothing half-written is left behind.
    """
    if target.exists() and not (overwrite and (target / MANIFEST).is_file()):
        raise OutputError(target, "exists already", "a new folder", "Choose another --out, or --overwrite for a bundle.")
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        manifest = fill(partial)
        names = sorted(str(file.relative_to(partial)) for file in partial.rglob("*") if file.is_file())
        entries = {name: file_entry(partial / name) for name in names}
        manifest.model_copy(update={"files": entries}).write(partial / MANIFEST)
        partial.chmod(0o755)
        if target.exists():
            shutil.rmtree(target)
        partial.rename(target)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return Bundle.open(target, verify=False)


def _unpack(archive: Path) -> Path:
    """Unpack beside the system's temporary files, keyed by the archive's hash so that a second run finds it."""
    target = Path(tempfile.gettempdir()) / f"fastcar-{file_entry(archive).sha256[:16]}"
    if (target / MANIFEST).is_file():
        return target
    try:
        with zipfile.ZipFile(archive) as file:
            partial = Path(tempfile.mkdtemp(prefix="fastcar-"))
            file.extractall(partial)
    except zipfile.BadZipFile as error:
        raise BundleError(archive, str(error), "a bundle folder or archive", "Copy it again.") from error
    try:
        partial.rename(target)
    except OSError:
        shutil.rmtree(partial)  # another process was faster
    return target
