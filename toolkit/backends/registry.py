"""Back ends by name."""

from __future__ import annotations

from ...hls.library import EngineLibrary
from ...overlays import load_engine
from ..bundle.bundle import BACKBONE, GOLDEN, Bundle
from ..errors import BundleError, UsageError
from .csim import CSimBackend
from .golden import START_STEPS, check_golden
from .onnxruntime import OnnxRuntimeBackend
from .protocol import Backend
from .reference import ReferenceBackend

__all__ = ["BACKENDS", "open_backend"]


def _onnxruntime(bundle: Bundle, threads: int | None) -> Backend:
    manifest = bundle.manifest
    backend = OnnxRuntimeBackend(bundle.path / BACKBONE, manifest.config, manifest.frame_layout, threads)
    check_golden(backend, bundle.path / GOLDEN, START_STEPS)
    return backend


def _reference(bundle: Bundle, threads: int | None) -> Backend:
    model, tensors = bundle.model()
    return ReferenceBackend(model, tensors["rotary.cos"], tensors["rotary.sin"])


def _csim(bundle: Bundle, threads: int | None) -> Backend:
    packed, manifest = bundle.packed(), bundle.manifest
    if packed is None:
        raise BundleError(
            bundle.path, "not packed for an overlay", "a bundle of `fastcar export --board`", "Export again."
        )
    engine = load_engine(manifest.overlay).config
    if packed.build_id != engine.build_id:
        raise BundleError(
            bundle.path,
            f"packed for build {packed.build_id:08x}",
            f"build {engine.build_id:08x} of engine {engine.name}",
            "Export it again.",
        )
    library = EngineLibrary(engine)
    backend = CSimBackend(library, packed, manifest.config, manifest.frame_layout)
    check_golden(backend, bundle.path / GOLDEN, START_STEPS)
    return backend


BACKENDS = {"onnxruntime": _onnxruntime, "reference": _reference, "csim": _csim}


def open_backend(name: str, bundle: Bundle, threads: int | None = None) -> Backend:
    """UsageError for a name that is not in ``BACKENDS``; ``threads`` None lets the back end choose.

    A back end that is not the reference first repeats the start of the bundle's golden clip (BundleError if it
    computes other bits on this processor).
    """
    if name not in BACKENDS:
        raise UsageError("--backend", repr(name), f"one of {', '.join(BACKENDS)}", "Choose one of these.")
    return BACKENDS[name](bundle, threads)
