"""A bundle packed for an overlay, made of one that is not: nothing is quantized again."""

from __future__ import annotations

import shutil
from pathlib import Path

from fastcar.export.overlay.compile import pack_model
from fastcar.overlays import Engine
from fastcar.toolkit.bundle.bundle import Bundle
from fastcar.toolkit.bundle.manifest import Manifest
from fastcar.toolkit.bundle.write import write_bundle

__all__ = ["packed_copy"]


def packed_copy(source: Path, target: Path, engine: Engine) -> Path:
    bundle = Bundle.open(source)

    def fill(folder: Path) -> Manifest:
        shutil.copytree(source, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("manifest.json"))
        pack_model(bundle.model()[0], engine.config).write(folder)
        packing = {"board": engine.board, "overlay": engine.config.name, "engine": engine.config}
        return bundle.manifest.model_copy(update=packing)

    return write_bundle(target, fill).path
