"""The overlay of a release: the bitstream and what belongs beside it."""

from __future__ import annotations

from pathlib import Path

from ..board.check import check_overlay as check_builds
from ..bundle.bundle import Bundle
from ..errors import OverlayError

__all__ = ["check_overlay", "overlay_files"]

HANDOFF = ".hwh"
BESIDE = (".dtbo", ".xclbin")


def check_overlay(bundle: Bundle, bit: Path) -> None:
    """Whether bitstream, handoff and bundle are of one build. OverlayError, or BundleError if it is packed for none."""
    if bit.suffix != ".bit":
        raise OverlayError(bit, "not a bitstream", "a file ending in .bit", "Correct --overlay.")
    for file, what in ((bit, "the bitstream"), (bit.with_suffix(HANDOFF), "the hardware handoff, of the same name")):
        if not file.is_file():
            raise OverlayError(file, "no such file", what, "Keep .bit and .hwh of one build beside each other.")
        if file.stat().st_size == 0:
            raise OverlayError(file, "an empty file", what, "Copy it again.")
    bundle.require_packed()
    check_builds(bit, bundle.manifest.engine)


def overlay_files(bit: Path) -> list[Path]:
    """The bitstream, its handoff, and device tree and container where they lie beside it."""
    optional = [bit.with_suffix(suffix) for suffix in BESIDE]
    return [bit, bit.with_suffix(HANDOFF), *(file for file in optional if file.is_file())]
