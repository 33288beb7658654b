"""Every pragma and option must be one of pragmas.json, the vocabulary of the vendor's reference."""

from __future__ import annotations

import difflib
import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .findings import Finding
from .pragmas import Pragma, is_pragma, parse_pragma
from .project import Project
from .tokens import Token

__all__ = ["check_vocabulary", "vocabulary"]

_HARMLESS = frozenset(["once"])


@functools.cache
def vocabulary() -> dict[str, dict[str, Any]]:
    """Pragma name -> its ``scope``, ``options``, ``requires`` and ``excludes``."""
    text = Path(__file__).with_name("pragmas.json").read_text("utf-8")
    pragmas: dict[str, dict[str, Any]] = json.loads(text)["pragmas"]
    return pragmas


def check_vocabulary(project: Project) -> Iterator[Finding]:
    for source in project.sources:
        for token in source.tokens:
            if is_pragma(token):
                yield from _check(parse_pragma(token), source.path)


def _check(pragma: Pragma, path: str) -> Iterator[Finding]:
    def finding(rule: str, found: str, expected: str, fix: str) -> Finding:
        return Finding(path, pragma.line, rule, f"#pragma {pragma.text}: {found}", expected, fix)

    known = vocabulary().get(pragma.name)
    if known is None:
        if pragma.text not in _HARMLESS:
            expected = "#pragma HLS and a name of UG1399" + _nearest(pragma.name, vocabulary())
            yield finding("pragma-name", "unknown, so compilers ignore it", expected, "Correct the name")
        return
    options = known["options"]
    values = {option: pragma.value(option).lower() for option in pragma.options}
    for word in pragma.words:
        home = next((key for key, option in options.items() if word.lower() in option.get("values", ())), None)
        if options.get(word.lower(), {}).get("kind") == "flag":
            values[word.lower()] = "true"
        elif home is not None:
            values.setdefault(home, word.lower())
            yield finding("pragma-option", f"{word} without its option", f"{home}={word}", f"Write {home}={word}")
        elif word.lower() in options:
            values.setdefault(word.lower(), "")
            yield finding("pragma-value", f"{word} has no value", f"{word}=...", "Give it a value")
        else:
            yield finding("pragma-option", f"unknown option {word}", _listed(options), "Correct or remove it")
    for key, tokens in pragma.options.items():
        if key not in options:
            yield finding("pragma-option", f"unknown option {key}", _listed(options), "Correct or remove it")
        elif wanted := _wrong(tokens, options[key]):
            yield finding("pragma-value", f"{key}={pragma.value(key)}", wanted, "Correct the value")
    for key, option in options.items():
        if option.get("required") and key not in values:
            yield finding("pragma-required", f"no {key}", f"{key}=...", f"State {key}")
    for rule in known.get("requires", ()):
        if values.get(rule["where"], "") in rule["is"] and rule["option"] not in values:
            expected = f"{rule['option']}=... beside {rule['where']}={values[rule['where']]}"
            yield finding("pragma-required", f"no {rule['option']}", expected, f"State {rule['option']}")
    for rule in known.get("excludes", ()):
        if values.get(rule["where"], "") in rule["is"] and rule["option"] in values:
            expected = f"no {rule['option']} when {rule['where']} is complete, its default"
            fix = f"Remove it or state {rule['where']}"
            yield finding("pragma-option", f"{rule['option']} has no effect", expected, fix)


def _wrong(tokens: tuple[Token, ...], option: dict[str, Any]) -> str:
    """What the value should be, or nothing if it is."""
    kind, text = option["kind"], "".join(token.text for token in tokens)
    if not tokens:
        return "a value"
    if kind == "integer":
        return _wrong_integer(tokens, option.get("minimum"))
    if kind == "word":
        return "" if text.lower() in option["values"] else "one of " + ", ".join(option["values"])
    if kind == "flag":
        return "" if text.lower() in ("true", "false") else "true or false"
    if kind in ("name", "names") and (tokens[0].kind != "identifier" or (kind == "name" and "," in text)):
        return "the name of a variable" if kind == "name" else "names of variables"
    return ""


def _wrong_integer(tokens: tuple[Token, ...], minimum: int | None) -> str:
    text = "".join(token.text for token in tokens)
    literal = text.lstrip("-").rstrip("uUlL")
    least = "" if minimum is None else f" of at least {minimum}"
    if literal.isdigit() and minimum is not None and int(literal) * (-1 if text[0] == "-" else 1) < minimum:
        return "an integer" + least
    whole = all(token.kind in ("number", "identifier", "operator") for token in tokens)
    fraction = any(token.kind == "number" and "." in token.text for token in tokens)
    return "" if whole and not fraction and "," not in text else "an integer constant expression" + least


def _listed(options: dict[str, Any]) -> str:
    return "one of " + ", ".join(options)


def _nearest(name: str, names: dict[str, Any]) -> str:
    close = difflib.get_close_matches(name, names, n=1)
    return f", such as {close[0]}" if close else ""
