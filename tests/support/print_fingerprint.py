"""Run as a script: one clip of a stored model by both back ends in this process; prints a sha256 of each."""

from __future__ import annotations

import sys
from pathlib import Path

from random_models import Run, fingerprint, generate_clip

from fastcar.toolkit.backends.onnxruntime import OnnxRuntimeBackend
from fastcar.toolkit.backends.reference import ReferenceBackend
from fastcar.toolkit.bundle.tensors import read_model
from fastcar.toolkit.config import BackboneConfig, FrameLayout


def main(folder: Path, thresholds: tuple[int, ...]) -> None:
    config = BackboneConfig.model_validate_json((folder / "config.json").read_text())
    layout = FrameLayout.model_validate_json((folder / "layout.json").read_text())
    model, tensors = read_model(folder / "weights.safetensors", config, layout, "post_rope")
    reference = ReferenceBackend(model, tensors["rotary.cos"], tensors["rotary.sin"])
    for backend in (reference, OnnxRuntimeBackend(folder / "backbone.onnx", config, layout, threads=2)):
        print(fingerprint(generate_clip(backend, Run(thresholds=thresholds))))


if __name__ == "__main__":
    main(Path(sys.argv[1]), tuple(map(int, sys.argv[2:])))
