"""Opening, verifying, writing and archiving bundles."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import zipfile
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from ..errors import BundleError, OutputError
from ..numerics.weights import IntegerModel
from ..program.packed import Packed
from .manifest import Manifest, file_entry
from .prompts import Prompts
from .tensors import read_model
from .text_prompts import TextPrompts

__all__ = [
    "BACKBONE",
    "DECODER",
    "DEPTH",
    "GOLDEN",
    "GOLDEN_NODES",
    "MANIFEST",
    "TOKENIZER",
    "WEIGHTS",
    "Bundle",
]

MANIFEST = "manifest.json"
BACKBONE = "backbone.onnx"
DEPTH = "depth.onnx"  # of a model with a depth transformer
WEIGHTS = "backbone.safetensors"
DECODER = "decoder.onnx"
TOKENIZER = "tokenizer.json"
GOLDEN = "golden/clip.safetensors"
GOLDEN_NODES = "golden/nodes.safetensors"  # for `fastcar selftest` only
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
            raise BundleError(path, "no such folder or file", "a bundle", "Make one with: fastcar export car --out DIR")
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
                raise BundleError(
                    file, f"{file.stat().st_size} bytes", f"{entry.bytes} bytes", "Copy the bundle again."
                )
        for name, entry in self.manifest.files.items():
            found = file_entry(self.path / name).sha256
            if found != entry.sha256:
                raise BundleError(
                    self.path / name,
                    f"sha256 {found[:12]}...",
                    f"{entry.sha256[:12]}...",
                    "The file was altered: copy it again.",
                )

    @cached_property
    def prompts(self) -> Prompts | TextPrompts:
        path = self.path / TOKENIZER
        try:
            stored = json.loads(path.read_text("utf-8"))
            kind = TextPrompts if isinstance(stored, dict) and "tokenizer" in stored else Prompts
            return kind.model_validate(stored)
        except ValueError as error:
            raise BundleError(path, "not a prompt vocabulary", "the words of the model", "Export again.") from error

    def model(self) -> tuple[IntegerModel, dict[str, np.ndarray]]:
        """The integer model and every stored tensor, for the reference and for packing."""
        manifest = self.manifest
        scored = (manifest.tas_query, manifest.depth, manifest.criterion, manifest.tas_heads)
        return read_model(self.path / WEIGHTS, manifest.config, manifest.frame_layout, *scored)

    def packed(self) -> Packed | None:
        """Program and weights for the overlay in the manifest; None if the bundle was not packed for one."""
        return Packed.read(self.path) if self.manifest.overlay else None

    def require_packed(self) -> Packed:
        """The same; BundleError if there is none, or it is not for the engine in the manifest as it is today."""
        self.require_for_engine()
        packed, engine = self.packed(), self.manifest.engine
        if packed is None or engine is None:
            raise BundleError(
                self.path, "not packed for an overlay", "a bundle of `fastcar export --board`", "Export again."
            )
        if packed.build_id != engine.build_id:
            raise BundleError(
                self.path,
                f"packed for build {packed.build_id:08x}",
                f"build {engine.build_id:08x} of engine {engine.name}",
                "Export it again.",
            )
        return packed

    def require_for_engine(self) -> None:
        """BundleError for a model decided by another criterion than TAS: no overlay runs it."""
        if self.manifest.criterion != "tas":
            raise BundleError(
                self.path,
                f"replay decided by {self.manifest.criterion}",
                "by TAS, all that an overlay's engine decides by",
                "Use --backend onnxruntime or reference, or export it without --criterion.",
            )

    def archive(self, path: str | Path) -> Path:
        """Write the bundle as one file (an uncompressed zip: weights do not compress, and it can be mapped).

        OutputError if it cannot be written; the file is complete or absent.
        """
        path = Path(path)
        partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with zipfile.ZipFile(partial, "w", zipfile.ZIP_STORED) as archive:
                for name in (MANIFEST, *self.manifest.files):
                    archive.write(self.path / name, name)
            partial.replace(path)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise OutputError(path, reason, "a file that can be written", "Choose another --archive.") from error
        finally:
            with suppress(OSError):
                partial.unlink()
        return path

    def _check_names(self) -> None:
        for name in self.manifest.files:
            if Path(name).is_absolute() or ".." in Path(name).parts:
                raise BundleError(
                    self.path / MANIFEST, f"file name {name!r}", "names inside the bundle", "Export again."
                )
        required = (*REQUIRED, *([DEPTH] if self.manifest.depth else []))
        missing = [name for name in required if name not in self.manifest.files]
        if missing:
            raise BundleError(
                self.path / MANIFEST, f"no entry for {missing[0]}", "all of " + ", ".join(required), "Export again."
            )


def _unpack(archive: Path) -> Path:
    """Unpack beside the system's temporary files, keyed by the archive's hash so that a second run finds it.

    What is found there is used if it is whole, and of this archive's own manifest; otherwise it is unpacked again.
    """
    target = Path(tempfile.gettempdir()) / f"fastcar-{file_entry(archive).sha256[:16]}"
    partial: Path | None = None
    try:
        with zipfile.ZipFile(archive) as file:
            if _is_unpacked(target, file.read(MANIFEST)):
                return target
            partial = Path(tempfile.mkdtemp(prefix="fastcar-"))
            file.extractall(partial)
        shutil.rmtree(target, ignore_errors=True)
        with suppress(OSError):  # another process was faster
            partial.rename(target)
        return target
    except KeyError:
        raise BundleError(archive, f"no {MANIFEST}", "a bundle folder or archive", "Is it the right file?") from None
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError) as error:
        reason = str(error) or "ends too early"
        raise BundleError(archive, reason, "a bundle folder or archive", "Copy it again.") from error
    finally:
        if partial:
            shutil.rmtree(partial, ignore_errors=True)


def _is_unpacked(target: Path, manifest: bytes) -> bool:
    try:
        if (target / MANIFEST).read_bytes() != manifest:
            return False
        Bundle(target, Manifest.read(target / MANIFEST)).verify()
    except (OSError, BundleError):
        return False
    return True
