"""A ``#pragma HLS`` line taken apart into its name and options."""

from __future__ import annotations

from dataclasses import dataclass, field

from .tokens import Token, tokenize

__all__ = ["Pragma", "is_pragma", "parse_pragma"]

_JOINING = frozenset(["+", "-", "*", "/", "%", "<<", "::", ".", "->", ",", "==", "<=", "&", "|", "?", ":"])
_OPENING, _CLOSING = {"(": ")", "[": "]", "<": ">"}, {")", "]", ">"}


@dataclass(frozen=True)
class Pragma:
    """``name`` is in capitals, and empty if the line is not one of HLS; ``words`` are options without a value."""

    line: int
    text: str
    name: str = ""
    options: dict[str, tuple[Token, ...]] = field(default_factory=dict)
    words: tuple[str, ...] = ()

    def value(self, option: str) -> str:
        """The option's value as written, without space; empty if it is not there."""
        return "".join(token.text for token in self.options.get(option, ()))

    def names(self, option: str) -> list[str]:
        """The variables an option lists, each without members and indices: ``a.b, c[0]`` are a and c."""
        names, start = [], True
        for token in self.options.get(option, ()):
            if start and token.kind == "identifier":
                names.append(token.text)
            start = token.text == ","
        return names

    @property
    def off(self) -> bool:
        return "off" in self.words or self.value("off").lower() == "true"


def is_pragma(token: Token) -> bool:
    return token.kind == "directive" and token.text.lstrip("# ").startswith("pragma")


def parse_pragma(token: Token) -> Pragma:
    """Options are ``key=value`` or bare words; a value is an expression, so it may hold operators and space."""
    text = token.text.lstrip("# ").removeprefix("pragma").strip()
    tokens = tokenize(text).tokens
    if len(tokens) < 2 or tokens[0].text.upper() != "HLS":
        return Pragma(token.line, text)
    options: dict[str, tuple[Token, ...]] = {}
    words, index = [], 2
    while index < len(tokens):
        key = tokens[index].text
        if index + 1 < len(tokens) and tokens[index + 1].text == "=":
            end = _value_end(tokens, index + 2)
            options[key.lower()] = tuple(tokens[index + 2 : end])
            index = end
        else:
            words.append(key)
            index += 1
    return Pragma(token.line, text, tokens[1].text.upper(), options, tuple(words))


def _value_end(tokens: list[Token], index: int) -> int:
    """Past the value that starts at ``index``: operands as long as operators or brackets join them."""
    depth, joined = 0, True
    while index < len(tokens):
        text = tokens[index].text
        followed_by_equals = index + 1 < len(tokens) and tokens[index + 1].text == "="
        if depth == 0 and not joined and text not in _JOINING and text not in _OPENING:
            break
        if depth == 0 and followed_by_equals and not joined:
            break
        depth += (text in _OPENING) - (text in _CLOSING)
        joined = text in _JOINING or text in _OPENING
        index += 1
    return index
