"""The overlay of a release: the bitstream and what belongs beside it."""

from __future__ import annotations

from pathlib import Path

from ..bundle.bundle import Bundle
from ..errors import OverlayError

__all__ = ["check_overlay", "overlay_files"]

HANDOFF = ".hwh"
BESIDE = (".dtbo", ".xclbin")


def check_overlay(bundle: Bundle, bit: Path) -> None:
    """Whether the overlay can be used with the bundle: bitstream and handoff are there. OverlayError if not."""
    if bit.suffix != ".bit":
        raise OverlayError(bit, "not a bitstream", "a file ending in .bit", "Correct --overlay.")
    for file, what in ((bit, "the bitstream"), (bit.with_suffix(HANDOFF), "the hardware handoff, of the same name")):
        if not file.is_file():
            raise OverlayError(file, "no such file", what, "Keep .bit and .hwh of one build beside each other.")
        if file.stat().st_size == 0:
            raise OverlayError(file, "an empty file", what, "Copy it again.")


def overlay_files(bit: Path) -> list[Path]:
    """The bitstream, its handoff, and device tree and container where they lie beside it."""
    optional = [bit.with_suffix(suffix) for suffix in BESIDE]
    return [bit, bit.with_suffix(HANDOFF), *(file for file in optional if file.is_file())]
