"""All sources that are checked together, and what a name means inside one of their functions."""

from __future__ import annotations

import ast
import operator
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from .syntax import Declarator, Function, Loop, Source, Statement, walk
from .tokens import Token

__all__ = ["Project", "Scope"]

_ARITHMETIC = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
}


@dataclass
class Project:
    """Constants and functions are looked up across the files: kernels include each other."""

    sources: list[Source]

    def __post_init__(self) -> None:
        self.functions = [function for source in self.sources for function in source.functions]
        self.variables = {variable.name: variable for source in self.sources for variable in source.variables}
        self.classes = [class_ for source in self.sources for class_ in source.classes]
        self.by_name: dict[str, list[Function]] = {}
        for function in self.functions:
            self.by_name.setdefault(function.name, []).append(function)
        self._comments = {source.path: source.comments for source in self.sources}

    def comment(self, path: str, first: int, last: int) -> str:
        """The comments on lines ``first`` to ``last``, joined."""
        comments = self._comments[path]
        return " ".join(comments[line] for line in range(first, last + 1) if line in comments)

    def kernels(self) -> Iterator[tuple[Function, Scope]]:
        """The functions that become hardware, each with its scope: all but those the compiler evaluates."""
        for function in self.functions:
            if not function.compile_time:
                yield function, Scope(self, function)


class Scope:
    """The names visible in a function: template parameters, parameters, locals, members, the project's constants."""

    def __init__(self, project: Project, function: Function) -> None:
        self.project, self.function = project, function
        self.locals: list[Declarator] = list(function.parameters)
        self.parameters = {parameter.name for parameter in function.parameters}
        for node, _ in walk(function.children):
            if isinstance(node, Statement | Loop):
                self.locals += node.declared
        self.fields = {field.name for field in function.owner.fields} if function.owner else set()

    def find(self, name: str, line: int) -> Declarator | None:
        """The parameter or local that ``name`` is on ``line``: of several, the last declared before."""
        known = [local for local in self.locals if local.name == name and local.line <= line]
        return known[-1] if known else None

    def _constant(self, name: str, line: int) -> Declarator | None:
        """The declaration of ``name`` if its value cannot change."""
        classes = [self.function.owner] if self.function.owner else []
        members = {constant.name: constant for class_ in classes for constant in class_.constants}
        declarator = self.find(name, line) or members.get(name) or self.project.variables.get(name)
        return declarator if declarator and declarator.words & {"const", "constexpr"} else None

    def compile_time(self, tokens: Sequence[Token], free: Collection[str] = ()) -> bool:
        """Whether the compiler knows the value; the names in ``free`` count as known."""
        return not self.run_time_names(tokens, free)

    def run_time_names(self, tokens: Sequence[Token], free: Collection[str] = ()) -> list[str]:
        """The names in an expression whose values the compiler does not know."""
        names = []
        for index, token in enumerate(tokens):
            before = tokens[index - 1].text if index else ""
            after = tokens[index + 1].text if index + 1 < len(tokens) else ""
            if token.kind != "identifier" or before in (".", "->", "::") or after == "::" or token.text in free:
                continue
            if not self._known(token, called=after == "("):
                names.append(token.text)
        return names

    def _known(self, token: Token, called: bool) -> bool:
        name = token.text
        if called and name in self.project.by_name:
            return all("constexpr" in function.words for function in self.project.by_name[name])
        if name in self.function.template:
            return True
        constant = self._constant(name, token.line)
        if constant is not None:
            return "constexpr" in constant.words or (bool(constant.value) and self.compile_time(constant.value))
        if name == "this" or self.find(name, token.line) is not None or name in self.fields:
            return False
        return name not in self.project.variables

    def integer(self, tokens: Sequence[Token]) -> int | None:
        """The value of a constant expression of integers; None if it depends on more."""
        words = []
        for token in tokens:
            if token.kind == "identifier":
                constant = self._constant(token.text, token.line)
                if constant is None or token.text in self.function.template:
                    return None
                value = self.integer(constant.value)
                if value is None:
                    return None
                words.append(str(value))
            elif token.kind == "number":
                words.append(token.text.replace("'", "").rstrip("uUlL"))
            else:
                words.append({"/": "//"}.get(token.text, token.text))
        try:
            return _evaluate(ast.parse(" ".join(words), mode="eval").body)
        except (SyntaxError, ValueError, ZeroDivisionError):
            return None


def _evaluate(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_evaluate(node.operand)
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        return int(_ARITHMETIC[type(node.op)](_evaluate(node.left), _evaluate(node.right)))
    raise ValueError("not an integer expression")
