"""Back ends by name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ...hls.library import EngineLibrary
from ..bundle.bundle import BACKBONE, GOLDEN, Bundle
from ..errors import UsageError
from .csim import CSimBackend
from .golden import START_STEPS, check_golden
from .onnxruntime import OnnxRuntimeBackend
from .protocol import Backend
from .reference import ReferenceBackend

__all__ = ["BACKENDS", "DeviceChoice", "open_backend"]


def _onnxruntime(bundle: Bundle, threads: int | None) -> Backend:
    manifest = bundle.manifest
    path, options = bundle.path / BACKBONE, {"depth": manifest.depth, "criterion": manifest.criterion}
    return OnnxRuntimeBackend(path, manifest.config, manifest.frame_layout, threads, **options)


def _reference(bundle: Bundle, threads: int | None) -> Backend:
    model, tensors = bundle.model()
    return ReferenceBackend(model, tensors["rotary.cos"], tensors["rotary.sin"])


def _csim(bundle: Bundle, threads: int | None) -> Backend:
    packed, manifest = bundle.require_packed(), bundle.manifest
    return CSimBackend(
        EngineLibrary(manifest.engine), packed, manifest.config, manifest.frame_layout, depth=manifest.depth
    )


@dataclass(frozen=True)
class DeviceChoice:
    """Where the pynq back end runs: see ``toolkit.board.target.DEVICES``. ``deadline``: seconds a start may take.

    ``clips`` and ``guided``: what contiguous memory is checked for before the overlay is loaded.
    """

    name: str = "board"
    overlay: Path | None = None
    deadline: float | None = None
    clips: int = 1
    guided: bool = True


def _pynq(bundle: Bundle, threads: int | None, device: DeviceChoice) -> Backend:
    from ..board.target import open_target

    target = open_target(device.name, bundle, device.overlay)
    from .pynq import PynqBackend  # imports pynq, which open_target does with care

    try:
        return PynqBackend(bundle, target, device.deadline, device.clips, device.guided)
    except BaseException:
        target.close()
        raise


BACKENDS = {"onnxruntime": _onnxruntime, "reference": _reference, "csim": _csim, "pynq": _pynq}
ENGINES = ("csim", "pynq")  # the overlay's


def open_backend(
    name: str,
    bundle: Bundle,
    threads: int | None = None,
    check: bool = True,
    device: DeviceChoice | None = None,
) -> Backend:
    """UsageError for a name that is not in ``BACKENDS``, BundleError for a model that the back end cannot run.

    ``threads`` None lets the back end choose.

    A back end that is not the reference first repeats the start of the bundle's golden clip (BundleError if it
    computes other bits on this processor), unless ``check`` is False: for who wants to know what is wrong.
    """
    if name not in BACKENDS:
        raise UsageError("--backend", repr(name), f"one of {', '.join(BACKENDS)}", "Choose one of these.")
    if name in ENGINES:
        bundle.require_for_engine()
    more = (device or DeviceChoice(),) if name == "pynq" else ()
    backend = BACKENDS[name](bundle, threads, *more)
    if check and name != "reference":
        try:
            check_golden(backend, bundle.path / GOLDEN, START_STEPS)
        except BaseException:
            # The error's traceback keeps the back end alive, in a notebook for long: the device would stay held.
            if hasattr(backend, "close"):
                backend.close()
            raise
    return backend
