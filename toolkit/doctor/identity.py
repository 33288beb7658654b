"""Which machine this is: a board of a Zynq family, and which one, or a workstation."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ...boards import board_names
from .machine import Machine

__all__ = ["Identity", "identify"]

FAMILY = re.compile(r"kria|k26|kv260|kr260|zcu\d|ultra96|zynq|pynq", re.I)


@dataclass(frozen=True)
class Identity:
    """``model``: as the device tree has it; ``board``: the name of a board file, None if it tells none of them."""

    model: str
    board: str | None
    source: str


def identify(machine: Machine) -> Identity | None:
    """None for a workstation: another processor, or one whose device tree is of another family and no $BOARD is set."""
    model = machine.text("proc/device-tree/model") or ""
    named = machine.environment.get("BOARD", "")
    if not machine.architecture.startswith(("aarch64", "arm")):
        return None
    if not FAMILY.search(model) and not (model and _known(named)):
        return None
    texts = {
        "$BOARD": named,
        "/etc/xocl.txt": machine.text("etc/xocl.txt") or "",
        "the device tree's model": model,
        "the device tree's compatible": machine.text("proc/device-tree/compatible") or "",
    }
    for source, text in texts.items():
        if board := _known(text):
            return Identity(model, board, source)
    return Identity(model, None, "")


def _known(text: str) -> str | None:
    """The board file that a text names: KV260, ultra96-v2, xlnx,zynqmp-sk-kv260-rev1 ..."""
    plain = re.sub(r"[^a-z0-9]", "", text.lower())
    return next((name for name in board_names() if name in plain), None)
