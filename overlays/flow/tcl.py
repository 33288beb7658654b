"""Values as Tcl reads them, and the wrapper that gives a script its arguments, whatever the tool passes on."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias

__all__ = ["Value", "argument_words", "tcl_list", "wrapper"]

Value: TypeAlias = str | int | float | Path | tuple[Path, ...]

PLAIN = re.compile(r"[A-Za-z0-9_./:+@%=~-]+")
ESCAPES = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}

WRAPPER = """\
# Generated: one phase and its arguments.
set ::argv [list {words}]
set ::argc [llength $::argv]
if {{[catch {{source {script}}} message details]}} {{
    puts stderr "ERROR: $message"
    puts stderr [dict get $details -errorinfo]
    exit 1
}}
exit 0
"""
# A tool ends with the script: Vitis HLS would wait for more, and not every version ends with 1 on an error in Tcl.


def tcl_list(items: Iterable[object]) -> str:
    """A list that Tcl takes apart into exactly these words."""
    return " ".join(map(_word, items))


def argument_words(arguments: dict[str, Value]) -> list[str]:
    """``-name``, value and so on; several files are one word, a list in Tcl; numbers with six decimals."""
    words = []
    for name, value in arguments.items():
        words += [f"-{name}", _text(value)]
    return words


def wrapper(script: Path, arguments: dict[str, Value]) -> str:
    """The text of a Tcl file that runs ``script`` with ``arguments`` in ``::argv`` and ends the tool."""
    return WRAPPER.format(words=tcl_list(argument_words(arguments)), script=tcl_list([script]))


def _text(value: Value) -> str:
    if isinstance(value, tuple):
        return tcl_list(value)
    return f"{value:.6f}" if isinstance(value, float) else str(value)


def _word(item: object) -> str:
    text = str(item)
    if PLAIN.fullmatch(text):
        return text
    return "".join(ESCAPES.get(c, c if c.isalnum() else "\\" + c) for c in text) or "{}"
