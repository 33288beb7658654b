"""Auto-regressive video models with cache-attentive replay on AMD/Xilinx edge boards.

The public names are imported when first used, so that ``import fastcar`` is instant and a board needs no torch::

    import fastcar

    bundle = fastcar.export_model("car", "car-w8a8", recipe="w8a8")
    generation = fastcar.generate(fastcar.Bundle.open("car-w8a8"), "left turn", seed=1)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .export.pipeline import export_model
    from .toolkit.bundle.bundle import Bundle
    from .toolkit.generation.run import generate

    __version__: str

__all__ = ["Bundle", "__version__", "export_model", "generate"]

_HOMES = {
    "Bundle": ".toolkit.bundle.bundle",
    "export_model": ".export.pipeline",
    "generate": ".toolkit.generation.run",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        value: Any = _version()
    elif name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name], __name__), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value  # asked once
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("fastcar-edge")
    except PackageNotFoundError:  # a source folder on the path, not installed
        return "0+unknown"
