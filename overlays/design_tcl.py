"""The facts of a block design as a Tcl dictionary: what the script that builds it in Vivado goes by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .connections import CLOCK, connections
from .design import PROCESSOR, BlockDesign

__all__ = ["design_tcl"]

VENDOR = "xilinx.com:ip:"
BITSTREAM = {"BITSTREAM.GENERAL.COMPRESS": "TRUE"}
"""Properties of every bitstream; that of the build id is added."""


def design_tcl(design: BlockDesign) -> str:
    """Text that sets ``design``, a dictionary; a list of lists where the order matters.

    ``clock_property``: of the processor, the clock it makes of the one that is wanted. ``cells``: VLNV by instance, the
    vendor's without version, as each Vivado has one version of each. ``parameters``: by instance, then name.
    ``interfaces``: master and slave. ``nets``: source, then sinks. ``segments``: address space, segment, base, bytes.
    """
    whole = connections(design)
    cells = {name: vlnv.rpartition(":")[0] if vlnv.startswith(VENDOR) else vlnv for name, vlnv in whole.cells.items()}
    bitstream = BITSTREAM | {"BITSTREAM.CONFIG.USR_ACCESS": f"0x{design.build_id:08X}"}
    segments = [(one.space, one.segment, f"0x{one.base:08X}", f"0x{one.size:X}") for one in whole.segments]
    facts = {
        "name": design.name,
        "build_id": f"{design.build_id:08x}",
        "clock_mhz": f"{design.clock_mhz:g}",
        "clock_property": f"CONFIG.{CLOCK}",
        "processor": PROCESSOR,
        "cells": _list(word for cell in cells.items() for word in cell),
        "parameters": _list(
            word for instance, values in whole.parameters.items() for word in (instance, _flat(values))
        ),
        "interfaces": _lists(whole.interfaces),
        "nets": _lists(whole.nets),
        "segments": _lists(segments),
        "bitstream": _flat(bitstream),
    }
    lines = [f"    {name} {{{value}}}" for name, value in facts.items()]
    return "\n".join(["# Generated. Do not edit.", "set design {", *lines, "}", ""])


def _flat(values: Mapping[str, str]) -> str:
    return _list(word for pair in values.items() for word in pair)


def _lists(rows: Iterable[Iterable[str]]) -> str:
    """A row a line."""
    return "".join(f"\n        {{{_list(row)}}}" for row in rows) + "\n    "


def _list(words: Iterable[str]) -> str:
    return " ".join(_word(word) for word in words)


def _word(word: str) -> str:
    """Names, paths and numbers are words as they are; only a list of several words needs braces."""
    if set(word) & set('{}[]"\\$;#\n') or not word:
        raise ValueError(f"{word!r} in a block design; expected letters, digits and . : / _ -")
    return f"{{{word}}}" if " " in word else word
