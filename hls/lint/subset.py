"""What kernels do without: memory on the heap, double precision, math libraries, exceptions, the system, macros."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from .findings import Finding
from .project import Project, Scope
from .syntax import Function, Source, Statement, walk
from .tokens import Token

__all__ = ["check_subset"]

_LISTS: dict[str, list[str]] = json.loads(Path(__file__).with_name("subset.json").read_text("utf-8"))

# Word -> (what it is, what to do instead).
_WORDS = {
    "new": ("heap memory", "Declare an array of constant size"),
    "delete": ("heap memory", "Declare an array of constant size"),
    "double": ("double precision", "Use float or an integer type"),
    "goto": ("a jump", "Use a loop or an if"),
    "throw": ("an exception", "Return a status or check before the kernel starts"),
    "try": ("an exception", "Return a status or check before the kernel starts"),
    "catch": ("an exception", "Return a status or check before the kernel starts"),
    "virtual": ("a call decided at run time", "Make the type a template parameter"),
    "dynamic_cast": ("a type decided at run time", "Make the type a template parameter"),
    "typeid": ("a type decided at run time", "Make the type a template parameter"),
}
_REMOVE = "Remove it, or guard it by FASTCAR_SIMULATION"
_GUARD = re.compile(r"FASTCAR_[A-Z0-9_]*_H")


def check_subset(project: Project) -> Iterator[Finding]:
    for source in project.sources:
        for index, token in enumerate(source.tokens):
            for found, expected, fix in _token(source, index, token, project):
                yield Finding(source.path, token.line, "subset", found, expected, fix)
    for function in project.functions:
        yield from _variable_arrays(function, Scope(project, function))


def _token(source: Source, index: int, token: Token, project: Project) -> Iterator[tuple[str, str, str]]:
    if token.kind == "directive":
        yield from _directive(token.text)
    elif token.kind == "number":
        yield from _number(token.text.lower())
    elif token.kind == "identifier":
        yield from _identifier(source.tokens, index, project)
    elif token.text == "(":
        yield from _function_pointer(source.tokens[index : index + 5])


def _directive(text: str) -> Iterator[tuple[str, str, str]]:
    name, _, rest = text.lstrip("# ").partition(" ")
    if name.startswith("include"):
        header = (name.removeprefix("include") + rest).strip()
        inside = header.strip('<>"')
        if (header[:1] == "<" and inside not in _LISTS["headers"]) or inside in _LISTS["quoted_headers_refused"]:
            expected = "headers of the project, or " + ", ".join(_LISTS["headers"])
            yield f"#include {header} has no place in hardware", expected, _REMOVE
    elif name == "define" and not _GUARD.fullmatch(rest):
        yield f"#define {rest} is not an include guard", "macros FASTCAR_..._H alone", "Write a constexpr or a template"


def _number(text: str) -> Iterator[tuple[str, str, str]]:
    hexadecimal = text.startswith("0x")
    fraction = "p" in text if hexadecimal else "." in text or ("e" in text and not text.startswith("0b"))
    if fraction and not text.endswith("f"):
        yield f"{text} is a double", "a literal of float", f"Write {text.rstrip('l')}f"


def _identifier(tokens: list[Token], index: int, project: Project) -> Iterator[tuple[str, str, str]]:
    text = tokens[index].text
    before = tokens[index - 1].text if index else ""
    qualifier = tokens[index - 2].text if before == "::" and index > 1 else ""
    called = index + 1 < len(tokens) and tokens[index + 1].text == "("
    if text in _WORDS and not (text == "delete" and before == "="):
        what, fix = _WORDS[text]
        yield f"{text} is {what}", "the synthesizable subset", fix
    elif qualifier == "std" and text in _LISTS["standard"]:
        yield f"std::{text} needs a run time", "plain arrays, ap_int and streams", "Use one of those"
    elif called and before not in (".", "->") and (qualifier in ("std", "hls") or text not in project.by_name):
        if text in _LISTS["heap"]:
            yield f"{text}() is heap memory", "the synthesizable subset", "Declare an array of constant size"
        elif text in _LISTS["math"]:
            fix = "Use a table or integer arithmetic"
            yield f"{text}() is of a math library, whose bits differ between tools", "arithmetic of the contract", fix
        elif text in _LISTS["system"]:
            yield f"{text}() is a call of the system", "the synthesizable subset", _REMOVE


def _function_pointer(tokens: list[Token]) -> Iterator[tuple[str, str, str]]:
    """``(*f)(`` and ``(*)(``; an array by pointer, ``(*x)[``, is not meant."""
    texts = [token.text for token in tokens]
    if texts[:2] == ["(", "*"] and (texts[2:4] == [")", "("] or (texts[3:5] == [")", "("] and texts[2] != "this")):
        yield "a pointer to a function", "calls known at compile time", "Make the function a template parameter"


def _variable_arrays(function: Function, scope: Scope) -> Iterator[Finding]:
    for node, _ in walk(function.children):
        for declarator in node.declared if isinstance(node, Statement) else ():
            names = [name for part in declarator.dimensions for name in scope.run_time_names(part)]
            if names:
                yield Finding(
                    function.path,
                    declarator.line,
                    "subset",
                    f"the size of {declarator.name} depends on {', '.join(names)} at run time",
                    "an array of constant size",
                    "Give it its largest size, as a template parameter",
                )
