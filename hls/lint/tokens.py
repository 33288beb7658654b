"""Tokens of a C++ source: comments beside them, preprocessor lines as single tokens, simulation-only code left out."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

__all__ = ["Token", "TokenizedSource", "tokenize"]

SIMULATION_MACRO = "FASTCAR_SIMULATION"

# `>` stays single, so that the two of ap_uint<ceil<N>> close two template lists.
_TOKEN = re.compile(
    r"""
    (?P<space>[ \t\r\f\v]+|\\\n)
  | (?P<newline>\n)
  | (?P<comment>//(?:\\\n|[^\n])*|/\*.*?(?:\*/|\Z))
  | (?P<string>(?:u8|[uUL])?R"(?P<tag>[^()\\\s]*)\(.*?\)(?P=tag)"|(?:u8|[uUL])?"(?:\\.|[^"\\\n])*")
  | (?P<character>(?:u8|[uUL])?'(?:\\.|[^'\\\n])+')
  | (?P<number>\.?[0-9](?:[eEpP][+-]|'?[0-9A-Za-z_]|\.)*)
  | (?P<identifier>[A-Za-z_]\w*)
  | (?P<operator><<=|\.\.\.|->\*|::|->|\+\+|--|<<|<=|==|!=|&&|\|\||[-+*/%&|^]=|.)
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True)
class Token:
    """``kind``: identifier, number, string, character, operator, or directive (a whole preprocessor line)."""

    kind: str
    text: str
    line: int


@dataclass
class TokenizedSource:
    """Tokens of what is synthesized, and the text of the comments on each line."""

    tokens: list[Token] = field(default_factory=list)
    comments: dict[int, str] = field(default_factory=dict)


def tokenize(text: str) -> TokenizedSource:
    """The tokens of ``text``; of branches on FASTCAR_SIMULATION only those where it is not defined."""
    source, conditions = TokenizedSource(), _Conditions()
    position, line, fresh = 0, 1, True  # fresh: only space so far on this line
    while position < len(text):
        match = _TOKEN.match(text, position)
        assert match is not None  # the last alternative takes any character
        kind, lexeme = str(match.lastgroup if match.lastgroup != "tag" else "string"), match.group()
        if fresh and lexeme == "#":
            lexeme, comments, position = _directive(text, position, line)
            if conditions.active:
                source.comments.update(comments)
            if not conditions.take(lexeme) and conditions.active:
                source.tokens.append(Token("directive", lexeme, line))
            line += text.count("\n", match.start(), position)
            continue
        position = match.end()
        if conditions.active and kind == "comment":
            _note(source.comments, lexeme, line)
        elif conditions.active and kind not in ("space", "newline"):
            source.tokens.append(Token(kind, lexeme, line))
        fresh = kind == "newline" or (fresh and kind in ("space", "comment"))
        line += lexeme.count("\n")
    return source


def _note(comments: dict[int, str], lexeme: str, line: int) -> None:
    for number, part in enumerate(lexeme.splitlines(), line):
        words = part.strip().lstrip("/*").removesuffix("*/").strip()
        comments[number] = f"{comments[number]} {words}" if number in comments else words


def _directive(text: str, position: int, line: int) -> tuple[str, dict[int, str], int]:
    """The logical line from ``position`` with its comments taken out: its text, the comments, where it ends."""
    words, comments = "", {}
    while position < len(text):
        match = _TOKEN.match(text, position)
        assert match is not None
        if match.lastgroup == "newline":
            break
        if match.lastgroup == "comment":
            _note(comments, match.group(), line)
        words += " " if match.lastgroup in ("space", "comment") else match.group()
        line += match.group().count("\n")
        position = match.end()
    return " ".join(words.split()), comments, position


class _Conditions:
    """The stack of #if: for each, whether its present branch is taken; of foreign conditions every branch is."""

    def __init__(self) -> None:
        self._taken: list[bool] = []
        self._decided: list[bool] = []

    @property
    def active(self) -> bool:
        return all(self._taken)

    def take(self, directive: str) -> bool:
        """Whether ``directive`` was a condition, after acting on it."""
        words = re.findall(r"\w+|[^\w\s]+", directive)[1:]
        name = words[0] if words else ""
        if name in ("if", "ifdef", "ifndef"):
            simulation = _means_simulation(words)
            self._decided.append(simulation is not None)
            self._taken.append(not simulation)
        elif name in ("else", "elif") and self._taken:
            if self._decided[-1]:
                self._taken[-1] = not self._taken[-1]
        elif name == "endif" and self._taken:
            self._taken.pop()
            self._decided.pop()
        else:
            return False
        return True


def _means_simulation(words: list[str]) -> bool | None:
    """True: the branch is for simulation alone; False: for synthesis; None: for neither in particular."""
    if [word for word in words if word.isidentifier() and word not in ("if", "ifdef", "ifndef", "defined")] != [
        SIMULATION_MACRO
    ]:
        return None
    return (words[0] == "ifndef") == ("!" in words)
