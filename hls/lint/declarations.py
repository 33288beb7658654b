"""Which names a statement, a parameter list or a template list declares."""

from __future__ import annotations

from collections.abc import Sequence

from .syntax import Declarator
from .tokens import Token

__all__ = ["closing", "declared_in", "parameters_of", "split", "template_names"]

_PAIRS = {"(": ")", "[": "]", "{": "}"}
_STORAGE = frozenset(["static", "const", "constexpr", "volatile", "mutable", "extern", "inline", "thread_local"])
_QUALIFIERS = _STORAGE | {"hls_thread_local", "typename", "struct", "class", "union", "enum"}
_BUILT_IN = frozenset(["void", "bool", "char", "short", "int", "long", "signed", "unsigned", "float", "double", "auto"])
_LEAVING = frozenset(["return", "goto", "break", "continue", "throw", "case", "default", "else"])
_NOT_A_TYPE = _LEAVING | {"new", "delete", "using", "typedef", "static_assert", "friend"}


def closing(tokens: Sequence[Token], index: int) -> int:
    """The index of the bracket that closes the one at ``index``, or the last index if none does."""
    depth = 0
    for position in range(index, len(tokens)):
        token = tokens[position]
        if token.kind == "operator":
            depth += (token.text in _PAIRS) - (token.text in _PAIRS.values())
        if depth == 0:
            return position
    return len(tokens) - 1


def _angle_end(tokens: Sequence[Token], index: int) -> int | None:
    """Past the template list that opens at ``index``; None if it is a comparison after all."""
    depth = 0
    while index < len(tokens):
        text = tokens[index].text
        if text in _PAIRS:
            index = closing(tokens, index)
        elif text in (";", "}", "&&", "||"):
            return None
        depth += (text == "<") - (text == ">")
        index += 1
        if depth == 0:
            return index
    return None


def split(tokens: Sequence[Token], separator: str, angles: bool = False) -> list[list[Token]]:
    """Parts between separators outside brackets (and outside <>, if ``angles``); none for no tokens."""
    parts: list[list[Token]] = [[]] if tokens else []
    index = 0
    while index < len(tokens):
        token, end = tokens[index], index + 1
        if token.text in _PAIRS:
            end = closing(tokens, index) + 1
        elif angles and token.text == "<":
            end = _angle_end(tokens, index) or end
        if token.text == separator:
            parts.append([])
        else:
            parts[-1] += tokens[index:end]
        index = end
    return parts


def _type_end(tokens: Sequence[Token]) -> int:
    """Past the type that ``tokens`` start with; 0 if they start with none."""
    index, named = 0, False
    while index < len(tokens):
        token = tokens[index]
        if token.text in _NOT_A_TYPE:
            return 0
        if token.text in _QUALIFIERS or token.text == "::":
            index += 1
        elif token.text in _BUILT_IN:
            index, named = index + 1, True
        elif token.kind == "identifier" and (not named or tokens[index - 1].text == "::"):
            index, named = index + 1, True
            if index < len(tokens) and tokens[index].text == "<":
                end = _angle_end(tokens, index)
                if end is None:
                    return 0
                index = end
        elif named and token.text in ("*", "&", "&&"):
            index += 1
        else:
            break
    return index if named else 0


def declared_in(tokens: Sequence[Token]) -> list[Declarator]:
    """The variables that a statement declares; none if it is not a declaration."""
    end = _type_end(tokens)
    if end == 0 or end >= len(tokens):
        return []
    if tokens[end].text == "[" and "auto" in {token.text for token in tokens[:end]}:
        names = tokens[end + 1 : closing(tokens, end)]
        return [Declarator(token.text, token.line, tuple(tokens[:end])) for token in names if token.text != ","]
    declared = []
    for part in split(tokens[end:], ","):
        while part and part[0].text in ("*", "&"):
            part = part[1:]
        if not part or part[0].kind != "identifier" or (len(part) > 1 and part[1].text not in "=[({:"):
            return declared
        declared.append(_declarator(part, tuple(tokens[:end])))
    return declared


def _declarator(part: list[Token], type_: tuple[Token, ...]) -> Declarator:
    index, dimensions = 1, []
    while index < len(part) and part[index].text == "[":
        end = closing(part, index)
        dimensions.append(tuple(part[index + 1 : end]))
        index = end + 1
    value = part[index:]
    if value and value[0].text == "=":
        value = value[1:]
    elif value and value[0].text in "({":
        value = value[1 : closing(value, 0)]
    return Declarator(part[0].text, part[0].line, type_, tuple(dimensions), tuple(value))


def parameters_of(tokens: Sequence[Token]) -> list[Declarator]:
    """The parameters between the parentheses of a function's head; those without a name have an empty one."""
    parameters = []
    for part in split(tokens, ",", angles=True):
        declarator = (split(part, "=", angles=True) or [[]])[0]
        group = next((i for i, token in enumerate(declarator) if token.text == "("), None)
        if group is not None:  # int (&x)[N]
            inner = declarator[group + 1 : closing(declarator, group)]
            declarator = [*declarator[:group], *inner, *declarator[closing(declarator, group) + 1 :]]
        first = next((i for i, token in enumerate(declarator) if token.text == "["), len(declarator))
        end = _type_end(declarator[:first])
        if 0 < end < first and declarator[end].kind == "identifier":
            parameters.append(_declarator([*declarator[end:], *part[len(declarator) :]], tuple(declarator[:end])))
        elif end and [token.text for token in declarator] != ["void"]:
            parameters.append(Declarator("", declarator[0].line, tuple(declarator[:end])))
    return parameters


def template_names(tokens: Sequence[Token]) -> list[str]:
    """The names of the parameters between the angle brackets of a template."""
    names = []
    for part in split(tokens, ",", angles=True):
        before_default = (split(part, "=", angles=True) or [[]])[0]
        words = [token.text for token in before_default if token.kind == "identifier"]
        if len(words) > 1:
            names.append(words[-1])
    return names
